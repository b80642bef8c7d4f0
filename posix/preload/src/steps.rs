//! Steps of the engine's protocols, told to a program that asks for them.
//!
//! This library has an engine of its own, which no program reaches. So a test that lets a program
//! die at a step asks here. A build without the feature `faults` has no steps, nor this function.

use engram::faults::on_step;

/// Calls `hook` with the name of each step from now on, and its length: once for each process.
#[unsafe(no_mangle)]
pub extern "C" fn engram_preload_on_step(hook: extern "C" fn(*const u8, usize)) {
    on_step(move |step| hook(step.as_ptr(), step.len()));
}
