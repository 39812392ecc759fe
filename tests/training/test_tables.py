"""Every entry of every table: its function exists and takes the knobs that the entry names."""

import inspect

import pytest

from dpviz.privacy import SCHEDULES
from dpviz.privacy.registry import Entry, InputError, Knob, Table
from dpviz.privacy.schedules import CUSTOM
from dpviz.training.local.spec import LOSSES as LOCAL_LOSSES
from dpviz.training.tables import CHOICES, METHODS

WITHOUT_FUNCTION = {CUSTOM, *METHODS}
TABLES = {"schedule": SCHEDULES, "local loss": LOCAL_LOSSES, **CHOICES}
# Arguments that are given before the knobs.
GIVEN = {"schedule": 1, "local loss": 1, "dataset": 2, "model": 2, "optimizer": 1, "curriculum": 2}
GIVEN |= {"learning_rate_schedule": 2, "clip_norm_schedule": 2}
CASES = [(table, name) for table, entries in TABLES.items() for name in entries if name not in WITHOUT_FUNCTION]


@pytest.mark.parametrize(("table", "name"), CASES)
def test_an_entrys_function_takes_its_knobs(table, name):
    entry = TABLES[table][name]
    arguments = list(inspect.signature(entry.function).parameters)[GIVEN.get(table, 0) :]
    augmented = ["augment"] if table == "dataset" and entry.knobs else []  # asked by the training loop, batch by batch
    assert arguments + augmented == list(entry.knobs)


def test_a_function_is_imported_at_its_first_use_and_kept():
    entry = Entry("half", "", build="fractions:Fraction")
    assert entry.make({}, 1, 2) == 0.5
    assert entry.function is entry.function
    with pytest.raises(TypeError, match="half has no function"):
        Entry("half", "").make({})


def test_a_table_refuses_a_name_twice_and_lists_its_names():
    table = Table("fruit", Entry("red-apple", "sweet"))
    with pytest.raises(ValueError, match="fruit 'red-apple' is registered twice"):
        table.add(Entry("red-apple", "sour"))
    with pytest.raises(InputError, match="unknown fruit 'pear'; choose one of red-apple"):
        table["pear"]
    assert table.titles == {"red-apple": "Red apple"}


def test_a_registered_function_is_the_entry_and_its_first_line_the_help():
    table: Table[Entry] = Table("curve")

    @table.register("flat", title="A flat line", level=Knob(2.0))
    def flat(epochs: int, level: float) -> list[float]:
        """The same in every epoch.

        More words.
        """
        return [level] * epochs

    entry = table["flat"]
    assert (entry.title, entry.help) == ("A flat line", "The same in every epoch.")
    assert entry.make({}, 3) == flat(3, 2.0) == [2.0] * 3
