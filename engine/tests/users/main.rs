//! Several users of one pool, and acts that are forbidden to them.

#[path = "../common/mod.rs"]
mod common;

mod between_users;
mod damaged;
mod forbidden;
mod leave;
mod modes;
mod strangers;
mod users;
