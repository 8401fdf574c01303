//! No two holders of a lock are valid at the same time, except where the store was made to forget the first.

use super::{Forgot, Hold, Promise, is_unsure};
use crate::Failure;

/// Checks the holds of one name, in the order of their grants.
///
/// # Errors
///
/// The two that overlap.
pub fn check(holds: &[Hold], forgot: &[Forgot], promise: Promise) -> Result<(), Failure> {
    let mut valid: Vec<&Hold> = Vec::new();
    for hold in holds.iter().filter(|hold| hold.valid >= Some(hold.granted)) {
        valid.retain(|earlier| earlier.valid >= Some(hold.granted));
        if let Some(earlier) = valid.first()
            && !is_unsure(hold.granted, forgot, promise)
        {
            return Err(format!("two hold it at the same time: {earlier:?} and {hold:?}").into());
        }
        valid.push(hold);
    }
    Ok(())
}
