//! Every grant has a larger fence than those before it: over releases, losses, and whatever the store forgot.
//!
//! Where the store forgot, holders of before may go on for a while, and hand on what they believe they hold, under fences that are
//! smaller than those of new holders: that is what fences are for. So among grants of that time the order is open; to all others
//! it is not.

use std::collections::HashMap;

use super::{Forgot, Hold, Promise};
use crate::Failure;

/// Checks the holds of one name, in the order of their grants.
///
/// # Errors
///
/// The two whose fences are in the wrong order.
pub fn check(holds: &[Hold], forgot: &[Forgot], promise: Promise) -> Result<(), Failure> {
    let mut given: HashMap<u64, &Hold> = HashMap::new();
    // With each hold, the largest fence up to it.
    let mut largest: Vec<&Hold> = Vec::new();
    for hold in holds {
        let open =
            forgot.iter().filter(|forgot| forgot.is_unsure(hold.granted, promise)).map(|forgot| forgot.from).min();
        let before = open.map_or(largest.len(), |from| holds.partition_point(|earlier| earlier.granted < from));
        let earlier = before.checked_sub(1).map(|last| largest[last]);
        if let Some(earlier) = earlier.filter(|earlier| earlier.fence >= hold.fence) {
            return Err(format!("the fence did not grow: {earlier:?}, then {hold:?}").into());
        }
        if let Some(same) = given.insert(hold.fence, hold) {
            return Err(format!("the fence was given twice: {same:?}, then {hold:?}").into());
        }
        let before = largest.last().copied().unwrap_or(hold);
        largest.push(if before.fence > hold.fence { before } else { hold });
    }
    Ok(())
}
