//! After the loss signal a holder does not hold the lock again; and if the store lost its data, every holder learns of
//! it soon.

use super::{Forgot, Hold, Promise};
use crate::Failure;

/// Checks the holds of one name.
///
/// # Errors
///
/// A holder that believes it holds what it does not.
pub fn check(holds: &[Hold], forgot: &[Forgot], promise: Promise) -> Result<(), Failure> {
    for hold in holds {
        if let (Some(told), Some(valid)) = (hold.told, hold.valid)
            && told <= valid
        {
            return Err(format!("it was told that it lost it, and holds it: {hold:?}").into());
        }
        for forgot in forgot.iter().filter(|forgot| forgot.everything && hold.granted < forgot.from) {
            if hold.valid.max(hold.untold) > Some(forgot.sure_from(promise)) {
                return Err(format!("the store forgot it, and nobody told the holder: {hold:?}, {forgot:?}").into());
            }
        }
    }
    Ok(())
}
