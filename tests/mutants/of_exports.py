"""Mutants of exports."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

_CHAIN: Final = "tests/spark/exports/test_chain.py"
_COMPARED: Final = "tests/spark/exports/test_incremental.py::test_additions_and_removals_are_exact"

MUTANTS: Final = (
    Mutant(
        "exports/checksum-of-a-grown-node-ignored",
        "spark/exports/incremental.py",
        "    return decoded if (len(sealed), crc) == (old.length, old.crc) else None\n",
        "    return decoded\n",
        (f"{_CHAIN}::test_an_open_node_with_the_same_ids_and_other_values",),
        "An open node that grew is known by its first slots, not by their IDs.",
    ),
    Mutant(
        "exports/checksum-of-a-node-ignored",
        "spark/exports/index.py",
        "        return self[1:6] == other[1:6]\n",
        "        return self[1:5] == other[1:5]\n",
        (_COMPARED,),
        "A node with the same IDs and another checksum has other entries.",
    ),
    Mutant(
        "exports/range-into-the-next-node",
        "spark/exports/incremental.py",
        "            self._done.append(run._replace(last=min(run.last, last)))\n",
        "            self._done.append(run)\n",
        (_COMPARED,),
        "A range of removed nodes ends below the first ID of the next node.",
    ),
    Mutant(
        "exports/fork-accepted",
        "spark/exports/incremental.py",
        "    if known != line:\n",
        "    if False:\n",
        (f"{_CHAIN}::test_a_forked_base_is_refused",),
        "An export of another history is not continued.",
    ),
    Mutant(
        "exports/changed-file-kept",
        "spark/exports/task.py",
        "            if written(target, file.name) != (file.nbytes, file.blake2b):\n",
        "            if False:\n",
        ("tests/spark/exports/test_resumed.py::test_a_changed_file_is_written_again",),
        "A file of an interrupted export is kept only if it matches its checksum.",
    ),
    Mutant(
        "exports/directory-of-a-killed-process-not-synced",
        "spark/exports/target.py",
        "        if folder in self._durable:\n",
        "        if folder in self._durable or self.disk.exists(folder):\n",
        ("tests/spark/exports/test_power_cut.py::test_it_ends_at_any_operation",),
        "A directory that a killed process made may not be on the disk yet.",
    ),
    Mutant(
        "exports/checksum-not-compared-by-combine",
        "spark/exports/combine.py",
        "            if blake2b(data, digest_size=HASH_BYTES).hexdigest() != file.blake2b:\n",
        "            if False:\n",
        (f"{_CHAIN}::test_a_flipped_byte_of_entries_is_noticed",),
        "A flipped byte in the end of a Parquet file renames a column.",
    ),
)
