//! One list of cases, run over every store and every way of deploying it.
//!
//! - [`deployment`]: what a store must bring to be run here; [`deployments`]: all there are.
//! - [`case`](mod@case): what a case is and what it may need; [`cases`](mod@cases): all there are, a file a topic.
//! - [`chaos`]: a layer that loses, delays and hangs calls, and counts them.
//! - [`remote`]: other processes, which do what a case tells them; [`child`]: their side; [`ledger`]: what they did under a lock, checked.
//! - [`trial`]: every case on every deployment. What a deployment cannot do shows as *ignored*, with the reason, never as passed.
//!
//! A new case is added to the list in its file and runs on every store; a new store is added to the list of deployments and runs
//! every case.

pub mod answer;
pub mod ask;
pub mod case;
pub mod cases;
pub mod chaos;
pub mod child;
pub mod deployment;
pub mod deployments;
pub mod hand;
pub mod ledger;
pub mod remote;
pub mod trial;
pub mod world;
