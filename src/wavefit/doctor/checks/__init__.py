"""The doctor's checks, one a file. See :mod:`wavefit.doctor`."""
