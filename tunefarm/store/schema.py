"""The columns of every table: plain types that any Parquet reader knows, each with its meaning."""

import pyarrow as pa

_TEXT, _INT, _FLOAT, _BOOL = pa.string(), pa.int64(), pa.float64(), pa.bool_()
_TIME = pa.timestamp("us", tz="UTC")


def _schema(*columns: tuple[str, pa.DataType, str]) -> pa.Schema:
    return pa.schema([pa.field(name, kind, metadata={"doc": doc}) for name, kind, doc in columns])


_PLACE = (
    ("part", _TEXT, "name of the part that it was first written in; begins with the UTC time"),
    ("part_row", _INT, "its row in that part"),
)
PLACE_ORDER = (("part", "ascending"), ("part_row", "ascending"))
"""The order in which rows were written, as near as the writers' clocks agree: it settles ties of time."""

TRIALS = _schema(
    ("trial_key", _TEXT, "key over problem, target, candidate and protocol; a later row of the same key supersedes"),
    ("sweep", _TEXT, "id of the sweep that made it"),
    ("job", _TEXT, "name of the job"),
    ("name", _TEXT, "the problem's name in the job"),
    ("op", _TEXT, "operation family"),
    ("problem", _TEXT, "the problem's key"),
    ("problem_json", _TEXT, "every field of the problem, as JSON"),
    ("label", _TEXT, "the problem, for people"),
    ("dtype", _TEXT, "element type of the problem's first tensor"),
    ("target", _TEXT, "the target's key: see view targets"),
    ("protocol", _TEXT, "the protocol's key"),
    ("protocol_json", _TEXT, "every field of the protocol, as JSON"),
    ("cache", _TEXT, "L2 cache before a timed launch: cold or hot"),
    ("candidate", _TEXT, "the candidate's key"),
    ("engine", _TEXT, "cudnn or torch"),
    ("candidate_name", _TEXT, "the engine's own name for it"),
    ("engine_id", _INT, "cuDNN's number of its engine; null for torch"),
    ("knobs", _TEXT, "knob choices asked for, as a JSON object"),
    ("resolved_knobs", _TEXT, "every knob as the built plan holds it, as a JSON object"),
    ("dynamic", _BOOL, "built with dynamic shapes"),
    ("replayable", _BOOL, "whether engine_id and knobs make the same plan again"),
    ("proposed_by", _TEXT, "heuristic mode or search that proposed it first"),
    ("rank", _INT, "how many its proposer put before it"),
    ("notes", pa.list_(_TEXT), "cuDNN's numerical notes on it, in lower case"),
    ("is_default", _BOOL, "the heuristic's first choice: what a user has who tunes nothing"),
    ("status", _TEXT, "measured, wrong, declined, failed, crashed or timed_out"),
    ("stage", _TEXT, "the last step it reached"),
    ("reason", _TEXT, "why it has no measurement, in one line"),
    ("signal", _TEXT, "signal that ended its process"),
    ("standing", _TEXT, "won, tied, slower or screened; null if not measured"),
    ("why", _TEXT, "why it stands there"),
    ("is_right", _BOOL, "whether its results are right; null if it never ran"),
    ("verdict_reason", _TEXT, "the gate of verification that it failed"),
    ("worst_l2", _FLOAT, "largest relative l2 error of its outputs"),
    ("worst_block", _FLOAT, "largest relative error of a 32 x 32 block"),
    ("worst_element", _FLOAT, "largest error of an element, in units of roundoff"),
    ("worst_gain", _FLOAT, "the gain farthest from 0, without sign"),
    (
        "errors",
        pa.list_(
            pa.struct([("name", _TEXT), ("l2", _FLOAT), ("block", _FLOAT), ("element", _FLOAT), ("gain", _FLOAT)])
        ),
        "the same for each output; null where it is not a number",
    ),
    ("deterministic", _BOOL, "whether launches on equal inputs gave equal bits; null where too few were compared"),
    ("repeats", _INT, "launches whose bits were compared; null where nobody looked"),
    (
        "checks",
        pa.list_(_TEXT),
        "what its results passed: random, after_timing, replayed, from_bytes, second_seed, repeats, integer, extreme",
    ),
    ("time_us", _FLOAT, "median of one launch, microseconds"),
    ("low_us", _FLOAT, "lower end of the median's 95 % interval"),
    ("high_us", _FLOAT, "upper end of the median's 95 % interval"),
    ("tflops", _FLOAT, "10^12 floating-point operations a second at time_us"),
    ("gb_per_s", _FLOAT, "10^9 bytes a second at time_us, each input read and each output written once"),
    ("method", _TEXT, "how it was timed: graph, events or wall"),
    ("load_ms", _FLOAT, "from the plan's bytes to something that can be launched"),
    ("first_call_ms", _FLOAT, "its first launch"),
    ("eager_us", _FLOAT, "launched from the host, back to back"),
    ("replay_us", _FLOAT, "replayed from a CUDA graph"),
    (
        "blocks",
        pa.list_(pa.struct([("round", pa.int32()), ("launches", pa.int32()), ("us", _FLOAT)])),
        "every timed block: round, launches, microseconds of one launch",
    ),
    ("plan_digest", _TEXT, "SHA-256 of the plan's bytes; kept in plans if it was a finalist"),
    ("plan_bytes", _INT, "size of the plan"),
    ("workspace_bytes", _INT, "device memory that a launch needs beside its tensors"),
    ("build_ms", _FLOAT, "from the graph to the plan's bytes, on one core"),
    ("finished_at", _TIME, "when it was finished"),
    ("worker", _TEXT, "GPU's UUID, or host and CPU; times of two workers are never compared"),
    *_PLACE,
)

PLANS = _schema(
    ("digest", _TEXT, "SHA-256 of the plan's bytes, unpacked; parts are sorted by it"),
    ("problem", _TEXT, "the problem's key"),
    ("target", _TEXT, "the target's key"),
    ("candidate", _TEXT, "the candidate's key"),
    ("engine", _TEXT, "cudnn or torch"),
    ("candidate_name", _TEXT, "the engine's own name for it"),
    ("engine_id", _INT, "cuDNN's number of its engine; null for torch"),
    ("resolved_knobs", _TEXT, "every knob as the plan holds it, as a JSON object"),
    ("workspace_bytes", _INT, "device memory that a launch needs beside its tensors"),
    ("raw_bytes", _INT, "size of the plan, unpacked"),
    ("created_at", _TIME, "when it was stored"),
    ("packed", pa.binary(), "the plan's bytes, packed by zlib"),
    *_PLACE,
)

PROPOSALS = _schema(
    ("problem", _TEXT, "the problem's key"),
    ("target", _TEXT, "the target's key"),
    ("search", _TEXT, "the search's key"),
    ("engine", _TEXT, "the engine that was asked"),
    ("candidates_json", _TEXT, "what it proposed, its favourite first, as a JSON list"),
    ("refusal", _TEXT, "why it refused the problem; null if it did not"),
    ("proposed_at", _TIME, "when it answered"),
    *_PLACE,
)

TARGETS = _schema(
    ("target", _TEXT, "the target's key"),
    ("label", _TEXT, "the target, for people"),
    ("kind", _TEXT, "cuda or cpu"),
    ("device", _TEXT, "the device's own name"),
    ("compute_capability", _TEXT, "such as 9.0; empty for a CPU"),
    ("cudnn", _TEXT, "cuDNN's version; empty where there is none"),
    ("cudnn_frontend", _TEXT, "version of cuDNN's frontend"),
    ("torch", _TEXT, "version of torch"),
    ("driver_cuda", _TEXT, "the CUDA version that the driver offers; empty for a CPU"),
    ("profile", _TEXT, "cuDNN's JSON of the device's properties; empty for a CPU"),
)

VIEWS = {
    "trials": TRIALS,
    "winners": TRIALS,
    "all_trials": TRIALS,
    "proposals": PROPOSALS,
    "all_proposals": PROPOSALS,
    "plans": pa.schema([field for field in PLANS if field.name != "packed"]),
    "targets": TARGETS,
}
"""What queries see. `trials`: the latest row of each trial key; `winners`: those that won, the latest of each problem,
target and protocol; `proposals`: the latest of each question; `all_…`: also superseded rows; `plans`: not their bytes.
"""
