//! A hundred that wait for a lock that is not released: what waiting costs.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::Client;

use crate::figure::Figure;
use crate::place::Place;
use crate::single::runtime;

/// The argument that makes this program wait, and nothing else: `--wait URL TASKS`.
pub(crate) const WAIT: &str = "--wait";
const WAITERS: usize = 100;
const NAME: &str = "held";
const SETTLING: Duration = Duration::from_secs(3);
const SPAN: Duration = Duration::from_secs(10);

/// A hundred tasks of one process, then a hundred processes.
pub(crate) fn idle() -> Vec<Figure> {
    let (place, runtime) = (Place::new(), runtime());
    let client = place.client(&runtime);
    let guard = runtime.block_on(client.lock(NAME).expect("a name").acquire()).expect("a grant");
    let tasks = share_of(&[Waiting::start(&place.url(), WAITERS)]);
    let many: Vec<Waiting> = (0..WAITERS).map(|_| Waiting::start(&place.url(), 1)).collect();
    let processes = share_of(&many);
    assert!(guard.is_valid());
    vec![
        Figure::told("file: 100 tasks of one process that wait, of a core", tasks, "%").at_most(2.0),
        Figure::told("file: 100 processes that wait, of a core", processes, "%").at_most(2.0),
    ]
}

/// Percent of a core that they use together once they have settled.
fn share_of(waiting: &[Waiting]) -> f64 {
    std::thread::sleep(SETTLING);
    let used = || waiting.iter().map(Waiting::used).sum::<f64>();
    let before = used();
    std::thread::sleep(SPAN);
    100.0 * (used() - before) / SPAN.as_secs_f64()
}

/// A process that waits; ended when this is dropped.
struct Waiting(Child);

impl Waiting {
    fn start(url: &str, tasks: usize) -> Self {
        let this = std::env::current_exe().expect("the path of this program");
        let mut command = Command::new(this);
        command.args([WAIT, url, &tasks.to_string()]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a process");
        let mut line = String::new();
        let output = child.stdout.take().expect("its output");
        BufReader::new(output).read_line(&mut line).expect("a line");
        assert_eq!(line, "waiting\n");
        Self(child)
    }

    /// Seconds on a processor so far, of all its threads.
    fn used(&self) -> f64 {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.0.id())).expect("its threads, from /proc");
        let nanos = threads.flatten().map(|thread| {
            let text = std::fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
            text.split(' ').next().and_then(|nanos| nanos.parse::<f64>().ok()).unwrap_or(0.0)
        });
        nanos.sum::<f64>() / 1e9
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // One that has ended by itself is fine too.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until it is killed.
pub(crate) fn wait(url: &str, tasks: &str) {
    runtime().block_on(async {
        let client = Client::connect(url).await.expect("a client");
        let lock = client.lock(NAME).expect("a name");
        let waiting: Vec<_> = (0..tasks.parse().expect("a number"))
            .map(|_| {
                let lock = lock.clone();
                tokio::spawn(async move { lock.acquire().await.map(drop) })
            })
            .collect();
        println!("waiting");
        std::io::stdout().flush().expect("an open output");
        for task in waiting {
            task.await.expect("a task").expect("a grant");
        }
    });
}
