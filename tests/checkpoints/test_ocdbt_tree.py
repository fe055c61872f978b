"""The tree of an OCDBT store, counted before tensorstore reads it."""

import numpy as np
import pytest

from normscope.checkpoints import open_series
from normscope.checkpoints.formats.orbax.ocdbt_tree import check_tree
from normscope.checkpoints.storage.local import LocalFolder
from tests.checkpoints.small_checkpoints import check_arrays


@pytest.mark.parametrize("kind", ["single", "numbered"])
@pytest.mark.parametrize("compression", [None, {"id": "zstd", "level": 3}])
def test_trees_that_tensorstore_writes(tmp_path, kind, compression):
    """Stores of several versions and levels are counted, and read."""
    tensorstore = pytest.importorskip("tensorstore")
    config = {"max_inline_value_bytes": 20, "max_decoded_node_bytes": 300, "manifest_kind": kind}
    base = {"driver": "file", "path": f"{tmp_path}/checkpoint_1/"}
    store = {"driver": "ocdbt", "base": base, "config": {**config, "compression": compression}}
    rng = np.random.default_rng(0)
    arrays = {f"layers_{i}.kernel": rng.standard_normal((7, 5)).astype("f4") for i in range(12)}
    for name, array in arrays.items():
        spec = {
            "driver": "zarr",
            "kvstore": {**store, "path": f"params.{name}/"},
            "metadata": {"chunks": [2, 3]},
        }
        tensorstore.open(spec, create=True, shape=array.shape, dtype=array.dtype).result().write(
            array
        ).result()
    folder = LocalFolder(tmp_path / "checkpoint_1")
    check_tree(folder, sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()))
    check_arrays(open_series(tmp_path).entries[0].open(), arrays)
