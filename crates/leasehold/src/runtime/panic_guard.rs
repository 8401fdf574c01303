//! User code that panics (listeners, layers, wakers) must not take the client with it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a panic carried.
pub(crate) type Panic = Box<dyn Any + Send>;

/// Runs user code, and returns its panic. Nothing of ours may be half done when it runs.
#[inline]
pub(crate) fn caught<T>(code: impl FnOnce() -> T) -> Result<T, Panic> {
    catch_unwind(AssertUnwindSafe(code))
}

/// Runs user code that has no caller for a panic to reach: the panic is logged, and has no other effect.
#[inline]
pub(crate) fn contained<T>(whose: &'static str, code: impl FnOnce() -> T) -> Option<T> {
    caught(code).map_err(|panic| log(whose, &panic)).ok()
}

/// Logs a panic. The subscriber is user code too.
#[cold]
pub(crate) fn log(whose: &'static str, panic: &Panic) {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    let _ = caught(|| tracing::error!(target: "leasehold::panic", whose, panic = text, "user code panicked"));
}
