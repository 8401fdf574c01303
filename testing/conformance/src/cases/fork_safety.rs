//! After `fork` every call in the child fails, and every drop does nothing.

use std::time::{Duration, Instant};

use crate::case::Checked;
use crate::child::{self, Job};
use crate::world::{PATIENCE, World};

crate::cases! {
    blocking the_child_can_do_nothing;
}

/// In a process of its own, which forks: here other trials run on other threads.
fn the_child_can_do_nothing(world: &World) -> Checked {
    let mut process = child::command(&world.url(), Job::Fork)?.spawn()?;
    let began = Instant::now();
    loop {
        if let Some(status) = process.try_wait()? {
            assert!(status.success(), "the child of a fork could do something, or hung: {status}");
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            process.kill()?;
            return Err("the child of a fork hangs".into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
