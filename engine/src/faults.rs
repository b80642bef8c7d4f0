//! Steps: named places in the protocols, where tests let a process die.
//!
//! `step!("put.copied")` is nothing at all in a build without the feature `faults`. With it, it
//! calls what [`on_step`] was given, which may kill the process, wait, or count. A name is
//! `<protocol>.<what has just happened>`; [`ALL`] has every one, in the order of the essays, so a
//! campaign can visit each, and a test compares the list with the source.

/// Marks a step of a protocol.
macro_rules! step {
    ($name:literal) => {
        #[cfg(feature = "faults")]
        $crate::faults::reached($name);
    };
}
pub(crate) use step;

#[cfg(feature = "faults")]
pub(crate) use enabled::reached;
#[cfg(feature = "faults")]
pub use enabled::{ALL, on_step};

#[cfg(feature = "faults")]
mod enabled {
    use std::sync::OnceLock;

    /// Every step's name.
    pub const ALL: &[&str] = &["commit.begun", "commit.changed", "commit.committed"];

    type Hook = Box<dyn Fn(&'static str) + Send + Sync>;
    static HOOK: OnceLock<Hook> = OnceLock::new();

    /// Calls `hook` at every step from now on. Once for each process.
    pub fn on_step(hook: impl Fn(&'static str) + Send + Sync + 'static) {
        assert!(HOOK.set(Box::new(hook)).is_ok(), "steps have a hook already");
    }

    pub(crate) fn reached(name: &'static str) {
        if let Some(hook) = HOOK.get() {
            hook(name);
        }
    }
}
