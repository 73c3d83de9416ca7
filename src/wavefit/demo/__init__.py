"""A small trained classifier (``digits.onnx``) and 500 labelled test images (``digits.npz``).

Both are made by ``examples/digits/train.py`` from scikit-learn's handwritten digits (UCI "Optical Recognition of
Handwritten Digits", CC BY 4.0).
"""
