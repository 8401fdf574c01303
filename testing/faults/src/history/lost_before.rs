//! A holder that loses a lock is notified before the next grant, except if the store was made to forget.

use super::{Forgot, Hold, Promise, is_unsure, nanos};
use crate::Failure;

/// Checks the holds of one name, in the order of their grants.
///
/// # Errors
///
/// The holder that was not notified, and the next one.
pub fn check(holds: &[Hold], forgot: &[Forgot], promise: Promise) -> Result<(), Failure> {
    let mut untold: Vec<&Hold> = Vec::new();
    for hold in holds {
        untold.retain(|earlier| earlier.untold >= Some(hold.granted + nanos(promise.told_late)));
        if let Some(earlier) = untold.first()
            && !is_unsure(hold.granted, forgot, promise)
        {
            return Err(format!("it was not told when the next had it: {earlier:?}, then {hold:?}").into());
        }
        untold.push(hold);
    }
    Ok(())
}
