//! Several processes: forked, killed, stopped, and what they hold meanwhile.

#[path = "../common/mod.rs"]
mod common;

mod children;
mod fork;
mod history;
mod holders;
mod kill;
mod leases;
mod linear;
mod lock_waits;
mod readers;
mod steps;
mod watching;
