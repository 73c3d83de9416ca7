"""The records: everything that flows through wavefit, frozen, readable from and written to JSON.

A field's name ends in its unit (``_s`` seconds, ``_bytes``, ``_w`` watts, ``_j`` joules, ``_hz``). Unknown is None,
never 0. Records are written with :func:`encode` and read back with :func:`decode`; a reader ignores fields that it
does not know, so that an older wavefit reads a newer record.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal, TypeVar

import msgspec

from wavefit.errors import InputError

SCHEMA_VERSION = 1

Dim = int | str | None
"""A dimension: a size, the name of a symbolic size, or None where the model says nothing."""

Precision = Literal["fp32", "fp16", "bf16", "int8"]


class Struct(msgspec.Struct, frozen=True):
    """A frozen record. Its kinds are built by keyword (msgspec inherits no ``kw_only``, mypy no ``frozen``)."""


# ---- Device ---------------------------------------------------------------------------------------------------------


class Pool(Struct, frozen=True, kw_only=True):
    """One memory pool of a device."""

    # "ram", "vram" (a card's own, or an APU's carve-out), "gtt" (system memory that the GPU may map)
    # "kfd" (what the compute driver offers: on an APU the carve-out or the GTT), and "hip", "torch" and "opencl" (what
    # that runtime offers), and "vis_vram" (the part of a card's own that the CPU reaches); they overlap, never add them
    name: str
    total_bytes: int | None = None
    free_bytes: int | None = None
    source: str


class Link(Struct, frozen=True, kw_only=True):
    """The PCIe link of a discrete card, as it runs now and at best."""

    speed_gts: float | None = None
    width: int | None = None
    max_speed_gts: float | None = None
    max_width: int | None = None


class Sensors(Struct, frozen=True, kw_only=True):
    """What a card's sensors say beside its power. None: it has none, or does not tell."""

    power_cap_w: float | None = None  # what its firmware may draw now
    power_cap_default_w: float | None = None
    power_cap_max_w: float | None = None
    fan_rpm: float | None = None  # 0: it stands still
    fan_max_rpm: float | None = None


class Figure(Struct, frozen=True, kw_only=True):
    """A number with its unit and where it comes from."""

    value: float
    unit: str
    source: str


class Runtime(Struct, frozen=True, kw_only=True):
    """A runtime that sees a device, and the index by which that runtime calls it here and now.

    HIP's index is what HIP_VISIBLE_DEVICES takes, unless that variable is set already: then it renumbers.
    """

    name: str  # "hip", "opencl", "cuda", "torch", "vulkan"
    version: str | None = None
    index: int | None = None  # of OpenCL within its platform
    platform: str | None = None  # OpenCL's: "AMD Accelerated Parallel Processing", "rusticl"
    partition: int | None = None  # the card's partition that this index is
    note: str | None = None  # why it is installed and does not answer, or what renumbers its indices


class Partition(Struct, frozen=True, kw_only=True):
    """A part of a card that stands as a GPU of its own (MI300X in CPX mode): runtimes list each by its own index."""

    number: int
    compute_units: int | None = None
    memory_bytes: int | None = None
    unique_id: str | None = None  # as KFD says it, hexadecimal


class Device(Struct, frozen=True, kw_only=True):
    """One GPU, or the CPU, as this machine has it."""

    id: str  # "cpu", "gpu0", "gpu1": unique on this machine, in PCI order
    kind: Literal["cpu", "gpu"]
    vendor: str | None = None  # "amd", "nvidia", "intel"
    name: str | None = None
    gfx: str | None = None  # the compiler's target: "gfx1103"
    integrated: bool | None = None
    pci_id: str | None = None  # "1002:15bf"
    pci_address: str | None = None  # "0000:03:00.0"
    compute_units: int | None = None  # CUs; cores on a CPU
    clock_hz: float | None = None  # highest compute clock that the driver names
    threads: int | None = None  # hardware threads of a CPU
    features: tuple[str, ...] = ()  # a CPU's vector instructions, as Linux names them: "avx2"
    wave_sizes: tuple[int, ...] = ()
    lds_bytes: int | None = None  # local memory that one work-group may take
    vgprs: int | None = None  # per SIMD
    caches: dict[str, int] = {}  # "l2_bytes": 6291456
    memory: tuple[Pool, ...] = ()
    link: Link | None = None
    sensors: Sensors | None = None
    peaks: dict[str, Figure] = {}  # "fp32", "fp16_matrix", "bandwidth"
    driver: str | None = None
    runtimes: tuple[Runtime, ...] = ()
    partitions: tuple[Partition, ...] = ()  # empty where the card is one whole
    partition_mode: str | None = None  # compute and memory: "CPX/NPS4", "SPX/NPS1"
    sysfs: str | None = None  # the device's folder in sysfs, for meters
    machine: str | None = None  # operating system and kernel


# ---- Model ----------------------------------------------------------------------------------------------------------


class TensorSpec(Struct, frozen=True, kw_only=True):
    """A named input or output. ``shape`` is None where even the rank is unknown."""

    name: str
    dtype: str  # numpy's name: "float32", "int64"; "string" for text
    shape: tuple[Dim, ...] | None


class NodeCost(Struct, frozen=True, kw_only=True):
    """What one node costs for the shapes asked about. None where its shapes could not be inferred."""

    name: str
    op: str
    flops: int | None  # a multiply-add counts as 2
    bytes: int | None  # inputs, weights and outputs, each once


class Cost(Struct, frozen=True, kw_only=True):
    """What a model costs for one set of input shapes."""

    shapes: dict[str, tuple[int, ...]]
    nodes: tuple[NodeCost, ...]
    flops: int  # of the nodes that are known
    bytes: int
    unknown: tuple[str, ...] = ()  # "OpType (n nodes)" of the nodes left out of the sums


class Model(Struct, frozen=True, kw_only=True):
    """A checked ONNX file."""

    name: str
    path: str  # absolute, the .onnx file
    sha256: str  # of the .onnx file and of every external data file, in a fixed order
    opset: int
    ir_version: int
    producer: str | None = None
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    nodes: int
    nodes_by_type: dict[str, int]
    parameters: int
    weight_bytes: int
    dynamic: tuple[str, ...] = ()  # names of the symbolic dimensions, "input:axis" where one has no name
    batch: str | None = None  # the symbolic first dimension that all inputs share; None: the batch is fixed
    external: tuple[str, ...] = ()  # external data files, relative to the model's folder
    source: str | None = None  # what the user gave, where that was not this file: "package.module:factory"
    exported_program: str | None = None  # absolute path of the .pt2 beside it, where the source was PyTorch
    program_fp32: tuple[str, ...] = ()  # nodes of that program that stay in fp32 where it runs in half
    precision: Precision = (
        "fp32"  # that the file itself computes in: fp16 or bf16 weights, int8 QuantizeLinear pairs
    )


# ---- Variant --------------------------------------------------------------------------------------------------------


class KeptNode(Struct, frozen=True, kw_only=True):
    """A node that a variant keeps above its precision, and why."""

    node: str
    op: str
    precision: Precision  # that it is kept in
    reason: str  # one clause: "its output reaches 1.3e+05, and half ends at 65504"
    figures: dict[str, float] = {}  # the numbers behind it: "max_abs"


class Scaled(Struct, frozen=True, kw_only=True):
    """A stretch of the graph that runs on smaller or larger numbers, and is scaled back after it."""

    nodes: tuple[str, ...]
    factor: float  # a power of two
    reason: str


class Sensitivity(Struct, frozen=True, kw_only=True):
    """How far the outputs move when only this node is lowered."""

    node: str
    op: str
    error: float | None  # relative L2 of the outputs; None: NaN, Inf, or it did not run


class Variant(Struct, frozen=True, kw_only=True):
    """A model in a lower precision, as a file of its own, and how it came to be."""

    key: str  # of the model, the data and what was asked for: the same key is not searched again
    name: str  # "fp16", "int8", "int8-2": unique in a bundle
    precision: Precision  # the lowest that it computes in
    model: Model  # the file
    target: str  # what it is made for: "any", "cpu u8s8", "migraphx s8s8"
    nodes: dict[str, int] = {}  # nodes that compute on floats, by precision
    kept: tuple[KeptNode, ...] = ()
    scaled: tuple[Scaled, ...] = ()
    recipe: dict[
        str, str | int | float | bool
    ] = {}  # "calibration": "percentile 99.99", "equalisation": True
    sensitivity: tuple[Sensitivity, ...] = ()
    # both emulated on the CPU, on data held out from calibration, by which the search chose: the check takes all data
    error: float | None = None  # relative L2 of the outputs
    task: TaskMetric | None = None
    evaluations: int = 0  # emulated runs of the whole data that the search took
    search_s: float = 0.0
    notes: tuple[str, ...] = ()  # what people should know: "calibrated on 12 items, which is few"


# ---- Plan -----------------------------------------------------------------------------------------------------------


class Prediction(Struct, frozen=True, kw_only=True):
    """What the planner expects. Every figure is predicted, none measured."""

    peak_bytes: int | None = None
    compute_s: float | None = None
    memory_s: float | None = None
    transfer_s: float | None = None
    launch_s: float | None = None
    total_s: float | None = None


class Plan(Struct, frozen=True, kw_only=True):
    """One way to run a model on a device."""

    route: str
    device: str  # Device.id
    precision: Precision = "fp32"
    variant: str | None = None  # Variant.name of the file that is run; None: the model's own
    batch: int = 1
    shapes: dict[str, tuple[int, ...]]  # every input's concrete shape at this batch
    options: dict[str, str | int | float | bool] = {}
    transfer: Literal["copy", "pinned", "zero-copy"] = "copy"
    predicted: Prediction | None = None

    @property
    def series(self) -> str:
        """What stays the same over a batch sweep, for people: "torch_gpu fp16 mode=graph"."""
        options = " ".join(f"{name}={value}" for name, value in sorted(self.options.items()))
        file = f"file={self.variant}" if self.variant not in (None, self.precision) else ""
        return " ".join(part for part in (self.route, self.precision, file, options) if part)

    @property
    def label(self) -> str:
        return f"{self.series} batch {self.batch}"


class Unsupported(Struct, frozen=True, kw_only=True):
    """A refusal as a value: why a route cannot run this model here, and what would mend it."""

    route: str
    reason: str
    fix: str
    device: str | None = None
    precision: Precision | None = None  # that alone is refused; None: the model whatever its precision


# ---- Verdict --------------------------------------------------------------------------------------------------------


class OutputError(Struct, frozen=True, kw_only=True):
    """How far one output is from the reference."""

    output: str
    elements: int
    rel_l2: float | None = None  # against the fp32 reference
    rel_l2_float64: float | None = None  # against float64, where it could be run
    reference_rel_l2_float64: float | None = None  # the fp32 reference's own error against float64
    allowed_rel_l2: float | None = (
        None  # against float64 where it could be run, else against the fp32 reference
    )
    cosine: float | None = None
    max_abs: float | None = None
    argmax_agreement: float | None = None  # share of rows; None where the output has no class axis
    nan: int = 0
    inf: int = 0
    all_equal: bool = False  # every row of the reference is the same: a comparison proves nothing


class TaskMetric(Struct, frozen=True, kw_only=True):
    """A metric on labelled data: the reference's and the candidate's."""

    name: str  # "top1", "top5", or the callable's name
    reference: float
    candidate: float
    samples: int
    max_drop: float

    @property
    def drop(self) -> float:
        return self.reference - self.candidate


class BadNode(Struct, frozen=True, kw_only=True):
    """The first node, in the graph's order, whose output moved."""

    name: str
    op: str
    output: str
    rel_l2: float | None
    detail: str = ""


class Verdict(Struct, frozen=True, kw_only=True):
    """Whether a plan's answers are unchanged, and by what evidence."""

    passed: bool
    reasons: tuple[str, ...]  # why it failed; empty where it passed
    warnings: tuple[str, ...] = ()  # what the comparison could not prove
    outputs: tuple[OutputError, ...] = ()
    task: TaskMetric | None = None
    first_bad_node: BadNode | None = None
    factor: float | None = None  # how many times the reference's own float64 error was allowed
    samples: int = 0


# ---- Measurement ----------------------------------------------------------------------------------------------------


class Percentiles(Struct, frozen=True, kw_only=True):
    """Of one scenario's query latencies, in seconds."""

    p50_s: float
    p90_s: float
    p95_s: float
    p99_s: float
    mean_s: float
    min_s: float
    max_s: float


class ScenarioResult(Struct, frozen=True, kw_only=True):
    """One LoadGen scenario. In SingleStream a query is one whole batch; elsewhere a sample is one item.

    Offline is one query of many items: its latencies are those of the batches that it is run in.
    """

    name: Literal["SingleStream", "Offline", "Server", "MultiStream"]
    queries: int
    samples: int  # items inferred: queries x batch in SingleStream
    duration_s: float
    throughput_per_s: float  # items a second
    latency: Percentiles
    latencies_s: tuple[float, ...] = ()  # raw, in order; thinned evenly to at most 2,000
    valid: bool  # LoadGen's own verdict
    reasons: tuple[str, ...] = ()  # LoadGen's words where it is not valid
    target_latency_s: float | None = None
    target_qps: float | None = None


class Power(Struct, frozen=True, kw_only=True):
    """Energy over the measured scenarios, from one meter."""

    meter: str  # "amdgpu hwmon power1_average", "rapl package-0", "nvml"
    covers: Literal["card", "package", "chip"]
    watts: float | None = None  # mean
    joules: float | None = None
    joules_per_inference: float | None = None
    samples: int = 0  # readings taken


class Measurement(Struct, frozen=True, kw_only=True):
    """What one plan took, in the child process that ran it."""

    load_s: float  # opening the session
    compile_s: float | None = (
        None  # of that, compiling kernels, the cache as it was; None: the runtime does not tell
    )
    first_run_s: float
    new_shape_s: float | None = None  # the first run at another batch; None where the shape is fixed
    steady_after_runs: int | None = None  # warm-up runs until the time settled
    scenarios: tuple[ScenarioResult, ...] = ()
    host_peak_bytes: int | None = None
    device_peak_bytes: int | None = None
    power: tuple[Power, ...] = ()

    def scenario(self, *names: str) -> ScenarioResult | None:
        """The first of the named scenarios that was run."""
        for name in names:
            for result in self.scenarios:
                if result.name == name:
                    return result
        return None

    @property
    def latency(self) -> ScenarioResult | None:
        """The scenario that a latency is quoted from."""
        return self.scenario("SingleStream", "MultiStream", "Server")

    @property
    def throughput(self) -> ScenarioResult | None:
        """The scenario that a throughput is quoted from."""
        return self.scenario("Offline", "SingleStream", "MultiStream", "Server")


class ProviderShare(Struct, frozen=True, kw_only=True):
    """What one execution provider, or library, ran."""

    provider: str
    nodes: int
    time_s: float | None = None  # of one run


class NodeTime(Struct, frozen=True, kw_only=True):
    name: str
    op: str
    provider: str
    time_s: float | None = None


class Placement(Struct, frozen=True, kw_only=True):
    """Which nodes really ran where, from a profiled run."""

    providers: tuple[ProviderShare, ...]
    cpu_nodes: tuple[NodeTime, ...] = ()  # the costliest nodes that ran on the CPU, at most ten
    source: str  # "onnxruntime profile", "torch"

    def on(self, provider: str) -> int:
        return sum(share.nodes for share in self.providers if share.provider == provider)


class Failure(Struct, frozen=True, kw_only=True):
    """Why a plan has no measurement."""

    kind: Literal["refused", "crash", "interrupted", "timeout", "out of memory"]
    stage: str  # "open", "first run", "check", "measure"
    reason: str
    fix: str = ""
    deadline_s: float | None = None  # that a timeout was held to


# ---- Record ---------------------------------------------------------------------------------------------------------


class Record(Struct, frozen=True, kw_only=True):
    """One line of ``records.jsonl``: everything about one plan on one device, the only input of what follows."""

    schema: int = SCHEMA_VERSION
    key: str  # what the result depends on, hashed: see record_key
    created: str  # ISO 8601, UTC
    device: Device
    model: Model
    plan: Plan
    versions: dict[str, str]  # package or runtime -> version
    verdict: Verdict | None = None
    placement: Placement | None = None
    measurement: Measurement | None = None
    failure: Failure | None = None

    @property
    def passed(self) -> bool:
        """Whether the plan may be picked."""
        return (
            self.failure is None
            and self.measurement is not None
            and self.verdict is not None
            and self.verdict.passed
        )

    @property
    def why_not(self) -> str:
        """One sentence for a plan that may not be picked, "" for one that may."""
        if self.failure is not None:
            return f"{self.failure.kind} at {self.failure.stage}: {self.failure.reason}"
        if self.verdict is not None and not self.verdict.passed:
            return "answers moved: " + "; ".join(self.verdict.reasons)
        return "" if self.measurement is not None else "not measured"


# ---- Requests -------------------------------------------------------------------------------------------------------

Objective = Literal["latency", "throughput", "energy", "memory", "cost"]
ScenarioName = Literal["SingleStream", "Offline", "Server", "MultiStream"]


class Constraints(Struct, frozen=True, kw_only=True):
    max_latency_s: float | None = None  # p90
    min_throughput_per_s: float | None = None
    max_memory_bytes: int | None = None  # device peak, host peak where the device is the CPU


class Load(Struct, frozen=True, kw_only=True):
    """How a plan is measured."""

    scenarios: tuple[ScenarioName, ...] = ("SingleStream", "Offline")
    duration_s: float = 2.0  # of each scenario
    target_latency_s: float | None = None  # Server and MultiStream
    target_qps: float | None = None  # Server
    seed: int = 0


class Data(Struct, frozen=True, kw_only=True):
    """What the answers are checked on: the user's data, or seeded random inputs where there is none."""

    path: str | None = None  # a folder of images by class, .npz or .npy
    labels: str | None = None
    metric: str = "top1"  # "top1", "top5", or "package.module:function"; only with labels
    count: int = 8  # samples compared number by number (the task metric takes all)
    seed: int = 0
    resize: Literal["crop", "stretch"] | None = None  # None: an image of another size is an error
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()


class Request(Struct, frozen=True, kw_only=True):
    """What the user asked optimize for."""

    objective: Objective = "latency"
    price_per_hour: float | None = None  # any currency; with objective "cost"
    constraints: Constraints = Constraints()
    precisions: tuple[Precision, ...] = ("fp32",)
    keep: tuple[str, ...] = ()  # nodes that stay in fp32 whatever the search finds
    mixed: bool = False  # assignments of several precisions to one model's nodes are searched as well
    batches: tuple[int, ...] = (1,)  # ascending
    sizes: dict[str, int] = {}  # sizes of symbolic dimensions other than the batch
    routes: tuple[str, ...] = ()  # empty: all
    series: str | None = None  # only the plans of this series; None: all
    devices: tuple[str, ...] = ()  # ids; empty: all
    require_gpu: bool = False
    allow_cpu: bool = False  # nodes that the engine cannot run go to the CPU, where the others are worth it
    max_drop: float = 0.01  # of the task metric
    data: Data = Data()
    load: Load = Load()
    deadline_s: float = 600.0  # for one plan
    tune_s: float = 0.0  # for tuning the kernels of one plan, on routes that have some
    budget_s: float | None = None  # for the whole


# ---- Finding --------------------------------------------------------------------------------------------------------

Layer = Literal["application", "framework", "runtime", "driver", "hardware", "environment"]


class Fix(Struct, frozen=True, kw_only=True):
    """One command that mends a finding."""

    command: str
    why: str = ""
    safe: bool = (
        False  # may be run by ``doctor --fix`` after asking; never what reboots, deletes or edits the boot
    )


class Finding(Struct, frozen=True, kw_only=True):
    """What a doctor's check found."""

    check: str  # the check's file name
    layer: Layer
    status: Literal[
        "ok", "note", "problem", "unknown"
    ]  # problem: a GPU that is there cannot be used as it should
    title: str  # one line
    evidence: tuple[str, ...] = ()  # what was read, and where
    cause: str = ""
    fixes: tuple[Fix, ...] = ()
    verify: str = ""  # the command that shows that it is mended


class Part(Struct, frozen=True, kw_only=True):
    """One part of the stack as it is: what a layer of the doctor's screen shows."""

    layer: Layer
    name: str  # "ONNX Runtime", "HIP", "amdgpu", "Radeon RX 7900 XTX"
    version: str | None = None
    state: Literal["ok", "missing", "broken", "unused", "unknown"] = "unknown"
    detail: str = ""


# ---- Bundle ---------------------------------------------------------------------------------------------------------


class Choice(Struct, frozen=True, kw_only=True):
    """What was picked, and why."""

    pick: str | None  # Record.key; None where no plan passed
    sentence: str  # what won, over what, by how much, what failed and why
    runners_up: tuple[str, ...] = ()  # keys, best first
    front: tuple[str, ...] = ()  # keys of the Pareto set


class Skipped(Struct, frozen=True, kw_only=True):
    """A plan that was not tried: the budget was spent, or the sweep had stopped before it."""

    plan: Plan
    reason: str


class Bundle(Struct, frozen=True, kw_only=True):
    """``bundle.json``: what lies in a bundle's folder and how it was made."""

    schema: int = SCHEMA_VERSION
    name: str
    created: str  # ISO 8601, UTC
    wavefit: str  # the version that wrote it
    command: str  # repeats it
    request: Request
    choice: Choice
    refusals: tuple[Unsupported, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    devices: tuple[Device, ...] = ()  # every device that was asked for, also those that no plan could use
    model: Model | None = None  # that was asked about; a record's is a variant's where its plan has one
    variants: tuple[Variant, ...] = ()
    files: dict[str, str]  # path in the folder, with "/" -> SHA-256


# ---- Reading and writing --------------------------------------------------------------------------------------------

T = TypeVar("T", bound=Struct)


def encode(record: Struct) -> bytes:
    """One line of JSON, keys in the order of the fields."""
    return msgspec.json.encode(record)


def pretty(record: Any) -> str:
    """Indented JSON, for ``--json`` and files that people read."""
    return msgspec.json.format(msgspec.json.encode(record), indent=2).decode()


def decode(data: bytes | str, kind: type[T], where: str = "the record") -> T:
    """Reads one record.

    Raises:
        InputError: the text is no JSON, or not a record of that kind; the message names the field.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise InputError(f"{where} is not a {kind.__name__}: {error}") from error


def fingerprint(*parts: Any) -> str:
    """A short hash of anything that encodes to JSON; equal values give equal hashes on every machine."""
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:24]
