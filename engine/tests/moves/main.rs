//! Moves between scopes: by themselves, killed, and beside all else that goes on.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/syscalls.rs"]
mod syscalls;

mod backup_moves;
mod copies_meet;
mod copy_kill;
mod lock_moves;
mod moved_under;
mod movers;
mod moves_meet;
mod snapshot_moves;
mod transfer;
mod transfer_kill;
mod write_moves;
