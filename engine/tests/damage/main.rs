//! Damage: what verify finds, what checksums tell, what decoders refuse.

#[path = "../common/mod.rs"]
mod common;

mod checksums;
mod corrupt;
mod decode;
mod verify;
mod verify_scopes;
