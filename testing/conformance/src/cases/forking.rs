//! After `fork` every call in the child fails, and every drop does nothing.

use crate::case::{Checked, Need};
use crate::deployment::Hook;
use crate::world::World;

crate::cases! {
    blocking the_child_can_do_nothing needs [Need::Hook(Hook::Fork)];
}

/// To be written with the first deployment that can fork; until then it shows as ignored.
fn the_child_can_do_nothing(_world: World) -> Checked {
    Err("no deployment can fork".into())
}
