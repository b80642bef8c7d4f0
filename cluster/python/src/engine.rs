//! The engine of this process, which `engram._engram` has.

use engram_parts::table::Table;
use pyo3::prelude::*;

/// The engine's functions. They are there as long as the process is: Python unloads no module.
pub fn table(py: Python<'_>) -> PyResult<&'static Table> {
    let address: usize = py.import("engram._engram")?.getattr("parts_table")?.call0()?.extract()?;
    // SAFETY: `parts_table` gives the address of a table that is never freed. Its version, the
    // first field in every version, is compared where it is used.
    Ok(unsafe { &*(address as *const Table) })
}
