//! What takes a whole pool to test, and sees into the index and the query from inside.

mod maintenance;
mod sealed;
