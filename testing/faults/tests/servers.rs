//! The harness itself: servers that come, go and forget on command, and connections that fail.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use leasehold_faults::Failure;
use leasehold_faults::proxy::Proxy;
use leasehold_faults::servers::redis::Settings;
use leasehold_faults::servers::resp::{Connection, Reply};
use leasehold_faults::servers::{Missing, Redis};
use libtest_mimic::{Arguments, Trial};

type Checked = Result<(), Failure>;
type Case = (&'static str, fn() -> Checked);

const CASES: &[Case] = &[
    ("a_server_keeps_forgets_and_comes_back", a_server_keeps_forgets_and_comes_back),
    ("a_durable_server_keeps_what_it_answered", a_durable_server_keeps_what_it_answered),
    ("a_stopped_server_answers_when_it_goes_on", a_stopped_server_answers_when_it_goes_on),
    ("a_server_with_users_and_one_with_a_password", a_server_with_users_and_one_with_a_password),
    ("a_server_ends_with_its_value", a_server_ends_with_its_value),
    ("a_server_ends_with_the_process_of_the_test", a_server_ends_with_the_process_of_the_test),
    ("a_server_outlives_the_thread_that_started_it", a_server_outlives_the_thread_that_started_it),
    ("a_server_that_cannot_start_says_why", a_server_that_cannot_start_says_why),
    ("a_proxy_cuts", a_proxy_cuts),
    ("a_proxy_cuts_in_the_middle_of_a_reply", a_proxy_cuts_in_the_middle_of_a_reply),
    ("a_proxy_refuses_and_resumes", a_proxy_refuses_and_resumes),
    ("a_proxy_holds_up_and_delays", a_proxy_holds_up_and_delays),
];

/// Set in a child that starts a server, prints its process id, and waits to be killed.
const CHILD: &str = "LEASEHOLD_FAULTS_CHILD";

fn main() -> ExitCode {
    if std::env::var_os(CHILD).is_some() {
        let server = Redis::start().expect("a server");
        println!("{}", server.id());
        std::thread::park();
    }
    let missing = Redis::is_there().err();
    let trials = CASES.iter().map(|(name, run)| match &missing {
        Some(error) if Missing::may_be_ignored(error) => {
            Trial::test(format!("{name} [ignored: {error}]"), || Ok(())).with_ignored_flag(true)
        }
        _ => Trial::test(*name, || Ok(run()?)),
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

fn keys(server: &Redis) -> Result<i64, Failure> {
    server.command(&["DBSIZE"])?.number()
}

fn a_server_keeps_forgets_and_comes_back() -> Checked {
    let mut server = Redis::with(Settings::default().socket())?;
    server.command(&["SET", "a", "1"])?;
    assert!(server.socket().exists());
    let snapshot = server.snapshot()?;
    server.command(&["SET", "b", "1"])?;
    assert_eq!(keys(&server)?, 2);
    let (address, id) = (server.address(), server.id());
    server.restart_from(&snapshot)?;
    assert_eq!((keys(&server)?, server.address()), (1, address));
    assert_ne!(server.id(), id);
    server.restart_empty()?;
    assert_eq!(keys(&server)?, 0);
    server.command(&["SET", "a", "1"])?;
    server.flush()?;
    assert_eq!(keys(&server)?, 0);
    // Without a file, a restart forgets.
    server.command(&["SET", "a", "1"])?;
    server.kill()?;
    assert!(Connection::open(address).is_err());
    server.restart()?;
    assert_eq!(keys(&server)?, 0);
    Ok(())
}

fn a_durable_server_keeps_what_it_answered() -> Checked {
    let mut server = Redis::with(Settings::default().durable())?;
    for number in 1..=5 {
        server.command(&["SET", &format!("key {number}"), "1"])?;
        server.restart()?;
        assert_eq!(keys(&server)?, number);
    }
    server.restart_empty()?;
    assert_eq!(keys(&server)?, 0);
    Ok(())
}

fn a_stopped_server_answers_when_it_goes_on() -> Checked {
    let server = Redis::start()?;
    let mut stream = TcpStream::connect(server.address())?;
    stream.set_read_timeout(Some(Duration::from_millis(100)))?;
    server.stop()?;
    stream.write_all(b"PING\r\n")?;
    let mut answer = [0; 7];
    assert!(stream.read_exact(&mut answer).is_err(), "a stopped server answered");
    server.go_on()?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.read_exact(&mut answer)?;
    assert_eq!(&answer, b"+PONG\r\n");
    Ok(())
}

fn a_server_with_users_and_one_with_a_password() -> Checked {
    let server = Redis::with(Settings::default().users("user default on nopass ~* &* +ping"))?;
    let mut stranger = Connection::open(server.address())?;
    assert_eq!(stranger.command(&["PING"])?, Reply::Text("PONG".into()));
    assert!(stranger.command(&["GET", "a"]).expect_err("an error").to_string().contains("NOPERM"));
    assert_eq!(server.command(&["GET", "a"])?, Reply::Nil);
    let server = Redis::with(Settings::default().password("secret"))?;
    let refused = Connection::open(server.address())?.command(&["PING"]);
    assert!(refused.expect_err("an error").to_string().contains("NOAUTH"));
    assert_eq!(server.command(&["PING"])?, Reply::Text("PONG".into()));
    Ok(())
}

fn a_server_ends_with_its_value() -> Checked {
    let server = Redis::start()?;
    let address = server.address();
    server.stop()?;
    drop(server);
    assert!(Connection::open(address).is_err());
    Ok(())
}

fn a_server_ends_with_the_process_of_the_test() -> Checked {
    let mut child = Command::new(std::env::current_exe()?).env(CHILD, "1").stdout(Stdio::piped()).spawn()?;
    let mut output = child.stdout.take().ok_or("no output")?;
    let mut said = Vec::new();
    while said.last() != Some(&b'\n') {
        let mut byte = [0];
        output.read_exact(&mut byte)?;
        said.push(byte[0]);
    }
    let id: u32 = std::str::from_utf8(&said)?.trim().parse()?;
    let alive = || std::fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|name| name.contains("redis"));
    assert!(alive());
    child.kill()?;
    child.wait()?;
    // No event reports the end of another process's child.
    let began = Instant::now();
    while alive() {
        assert!(began.elapsed() < Duration::from_secs(30), "the server outlives the test");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn a_server_outlives_the_thread_that_started_it() -> Checked {
    let server = std::thread::spawn(Redis::start).join().expect("no panic")?;
    assert_eq!(server.command(&["PING"])?, Reply::Text("PONG".into()));
    Ok(())
}

fn a_server_that_cannot_start_says_why() -> Checked {
    let failed = Redis::with(Settings::default().option("maxmemory-policy", "nonsense"));
    assert!(failed.expect_err("an error").to_string().contains("nonsense"));
    Ok(())
}

fn a_proxy_cuts() -> Checked {
    let server = Redis::start()?;
    let proxy = Proxy::before(server.address())?;
    let mut connection = Connection::open(proxy.address())?;
    assert_eq!(connection.command(&["SET", "a", "1"])?, Reply::Text("OK".into()));
    assert_eq!(proxy.connections(), 1);
    proxy.cut();
    assert!(connection.command(&["PING"]).is_err());
    let mut connection = Connection::open(proxy.address())?;
    assert_eq!(connection.command(&["GET", "a"])?, Reply::Text("1".into()));
    Ok(())
}

fn a_proxy_cuts_in_the_middle_of_a_reply() -> Checked {
    let server = Redis::start()?;
    let proxy = Proxy::before(server.address())?;
    // "+OK\r\n" has five bytes: those of the first reply, and some of the second.
    for bytes in 5..10 {
        let mut connection = Connection::open(proxy.address())?;
        proxy.cut_after(bytes);
        let cut = proxy.cut_in_a_reply();
        connection.command(&["SET", "a", "before"])?;
        let error = connection.command(&["SET", "a", &bytes.to_string()]).expect_err("an error");
        let expected = if bytes == 5 { "was closed" } else { "in the middle of a reply" };
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(proxy.cut_in_a_reply(), cut + 1);
        assert_eq!(server.command(&["GET", "a"])?, Reply::Text(bytes.to_string()), "it was not carried out");
    }
    Ok(())
}

fn a_proxy_refuses_and_resumes() -> Checked {
    let server = Redis::start()?;
    let proxy = Proxy::before(server.address())?;
    for _ in 0..5 {
        let mut connection = Connection::open(proxy.address())?;
        connection.command(&["PING"])?;
        proxy.refuse()?;
        assert!(connection.command(&["PING"]).is_err());
        assert!(Connection::open(proxy.address()).is_err());
        proxy.resume()?;
    }
    Connection::open(proxy.address())?.command(&["PING"])?;
    Ok(())
}

fn a_proxy_holds_up_and_delays() -> Checked {
    let server = Redis::start()?;
    let proxy = Proxy::before(server.address())?;
    let mut connection = Connection::open(proxy.address())?;
    connection.command(&["PING"])?;
    proxy.delay(Duration::from_millis(30));
    let began = Instant::now();
    connection.command(&["PING"])?;
    assert!(began.elapsed() >= Duration::from_millis(60), "{:?}", began.elapsed());
    proxy.hold();
    let waiting = std::thread::spawn(move || connection.command(&["SET", "a", "1"]).map(|_| ()));
    let mut late = Connection::open(proxy.address())?;
    assert_eq!(server.command(&["GET", "a"])?, Reply::Nil);
    assert!(!waiting.is_finished());
    proxy.resume()?;
    waiting.join().expect("no panic")?;
    assert_eq!(late.command(&["GET", "a"])?, Reply::Text("1".into()));
    Ok(())
}
