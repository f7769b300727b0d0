"""Job files: YAML -> `Job`, with every mistake told at once.

::

    job: my-layers                   # optional; the file's name without its ending
    include: other.yaml              # optional; a path or several: their ops come first, under this job's settings
    search: {engines: [cudnn]}       # optional; fields of model.job.Search
    measure: {cache: hot}            # optional; fields of model.job.Protocol
    ops:
      - op: sdpa                     # an operation; all other keys but those below are fields of its problem
        name: chat                   # optional
        heads_q: 32
        head_dim: [64, 128]          # lists multiply
        zip:                         # lists in a zip advance together; several zips are a list of mappings
          seq_q: [1, 1k]             # k, M and G (KiB, MiB, GiB) are powers of 1024
          seq_kv: [4k, 1k]
        where: seq_q * head_dim < 100000   # one condition or several: keep a combination only if all hold
        search: {compile: false}     # this entry's own settings, over the job's
        measure: {seed: 1}
"""

from tunefarm.jobfile.read import DEFAULT_LIMIT, read_job
from tunefarm.jobfile.schema import job_schema

__all__ = ["DEFAULT_LIMIT", "job_schema", "read_job"]
