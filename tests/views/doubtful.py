"""Run files whose scan found something wrong, or that have another scope than people expect."""

from normscope.remarks import Finding, LeftOut, write_remarks
from normscope.run import NO_PREVIOUS, CheckpointRow, Run, TensorRow, WeightRow

BREAK = Finding("break", (150, 170), "the move to step 170 is 26, its neighbours move by 0.6", 0.93)
GAP = Finding("gap", (90,), "step 90 is missing", 0.6, {"missing": 1})
HINT = Finding("spacing", (), "the steps are uneven", 0.2)
LEFT_OUT = LeftOut("model_best", "a copy of the best checkpoint")


def remark(path, *findings, left_out=(LEFT_OUT,)):
    """Leave findings and checkpoints left out in a run file, as a scan does."""
    with Run(path, write=True) as run, run.transaction():
        write_remarks(run, left_out, findings)
    return path


def write_embeddings_only(path, steps=(0, 10, 20, 30)):
    """A model without a body: two tables, and nothing else."""
    with Run.create(path) as run, run.transaction():
        run.write(CheckpointRow(step, f"step{step}", "made") for step in steps)
        for i, role in enumerate(("embedding", "head")):
            run.add_tensors([TensorRow(i, f"{role}.weight", "model", None, role, (3, 3), "float32", 9)])
            run.write(WeightRow(step, NO_PREVIOUS, i, 2.0 + step**0.5) for step in steps)
    return path
