//! Servers, and whatever stands before them, that cut answers short, answer too much, or nonsense; and neighbours that never stop talking.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::{Client, ErrorKind};
use leasehold_faults::Failure;
use leasehold_faults::servers::Redis;

use crate::scene::{Case, Checked, LIMIT, S, block_on, eventually, number, until_waiting, url};

pub(crate) const CASES: &[Case] = &[
    ("hostile::an_answer_that_is_cut_short_is_asked_for_again", || block_on(cut_short())),
    ("hostile::an_answer_without_sense_ends_with_the_callers_patience", || block_on(without_sense())),
    ("hostile::a_clock_without_sense_is_no_clock", || block_on(no_time())),
    ("hostile::an_answer_to_many_without_a_fence_grants_nothing", || block_on(many_without_a_fence())),
    ("hostile::an_answer_that_is_too_large_is_not_read", || block_on(too_large())),
    ("hostile::a_flood_of_hints_stops_no_waiter", || block_on(a_flood_of_hints())),
    ("hostile::a_scan_that_never_ends_is_given_up", || block_on(a_scan_that_never_ends())),
];

/// What becomes of a call.
#[derive(Clone)]
enum Act {
    /// The server gets it.
    Pass,
    /// This is answered in its place, and then the connection is closed or not.
    Answer(Arc<[u8]>, bool),
}

/// What becomes of each call, in turn.
type Acts = Mutex<Box<dyn FnMut(&[u8]) -> Act + Send>>;

/// Stands before a server, and answers some calls itself.
struct Between {
    address: SocketAddr,
    acts: Arc<Acts>,
}

impl Between {
    fn start(server: SocketAddr, acts: impl FnMut(&[u8]) -> Act + Send + 'static) -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let acts: Arc<Acts> = Arc::new(Mutex::new(Box::new(acts)));
        let here = acts.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let acts = here.clone();
                std::thread::spawn(move || serve(client, server, &acts));
            }
        });
        Ok(Self { address, acts })
    }

    fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    fn now(&self, acts: impl FnMut(&[u8]) -> Act + Send + 'static) {
        *self.acts.lock().expect("acts") = Box::new(acts);
    }
}

fn serve(mut client: TcpStream, server: SocketAddr, acts: &Acts) -> Option<()> {
    let mut upstream = TcpStream::connect(server).ok()?;
    let (mut back, mut answers) = (client.try_clone().ok()?, upstream.try_clone().ok()?);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut answers, &mut back);
        let _ = back.shutdown(std::net::Shutdown::Both);
    });
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = client.read(&mut buffer).ok().filter(|read| *read > 0)?;
        let act = acts.lock().ok()?(&buffer[..read]);
        match act {
            Act::Pass => upstream.write_all(&buffer[..read]).ok()?,
            Act::Answer(bytes, closes) => {
                let _ = client.write_all(&bytes);
                if closes {
                    let _ = client.shutdown(std::net::Shutdown::Both);
                    return None;
                }
            }
        }
    }
}

fn is_script(call: &[u8]) -> bool {
    call.windows(4).any(|word| word == b"EVAL")
}

async fn cut_short() -> Checked {
    let server = Redis::start()?;
    for cut in ["*", "*3\r\n$7\r\ngra", "*3\r\n", "$7\r\ngranted", "*3\r\n$7\r\ngranted\r\n:17"] {
        let (times, answer) = (Arc::new(AtomicUsize::new(0)), Arc::<[u8]>::from(cut.as_bytes()));
        let (counted, here) = (times.clone(), answer.clone());
        let between = Between::start(server.address(), move |call| {
            let is_cut = is_script(call) && counted.fetch_add(1, Ordering::SeqCst) < 3;
            if is_cut { Act::Answer(here.clone(), true) } else { Act::Pass }
        })?;
        let client = Client::connect(&between.url()).await?;
        let guard = client.lock("a")?.acquire_within(LIMIT).await?.granted().ok_or("it is busy")?;
        assert!(times.load(Ordering::SeqCst) >= 3, "{cut:?}: nothing was cut");
        guard.release().await?;
        assert_eq!(number(&server, &["EXISTS", "a"])?, 0, "{cut:?}");
        let once = answer.clone();
        between.now(move |call| if is_script(call) { Act::Answer(once.clone(), true) } else { Act::Pass });
        let error = client.lock("a")?.try_acquire().await.expect_err("it is never answered");
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{cut:?}: {error}");
    }
    Ok(())
}

async fn without_sense() -> Checked {
    let server = Redis::start()?;
    let answers = [
        "+granted\r\n",
        ":7\r\n",
        "*0\r\n",
        "*2\r\n$4\r\nwhat\r\n:1763262000000000\r\n",
        "*3\r\n$7\r\ngranted\r\n:1763262000000000\r\n*4\r\n:-1\r\n:1\r\n:1\r\n:30000\r\n",
        "*3\r\n$7\r\ngranted\r\n:1763262000000000\r\n*4\r\n:0\r\n:1\r\n:1\r\n:30000\r\n",
        "*3\r\n$7\r\ngranted\r\n:1763262000000000\r\n*4\r\n:1\r\n:0\r\n:1\r\n:30000\r\n",
        "*3\r\n$7\r\ngranted\r\n:1763262000000000\r\n*4\r\n:1\r\n:1\r\n:1\r\n:0\r\n",
        "*3\r\n$7\r\ngranted\r\n:1763262000000000\r\n*4\r\n:9007199254740992\r\n:1\r\n:1\r\n:30000\r\n",
        "*3\r\n$7\r\ngranted\r\n:1763262000000000\r\n*4\r\n:9223372036854775807\r\n:9\r\n:1\r\n:30000\r\n",
        "what is this\r\n",
    ];
    for answer in answers {
        let bytes: Arc<[u8]> = answer.as_bytes().into();
        let between = Between::start(server.address(), |_| Act::Pass)?;
        let client = Client::connect(&between.url()).await?;
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        between.now(move |call| {
            if !is_script(call) {
                return Act::Pass;
            }
            counted.fetch_add(1, Ordering::SeqCst);
            Act::Answer(bytes.clone(), false)
        });
        let waited = tokio::time::timeout(LIMIT, client.lock("a")?.acquire_within(2 * S)).await?;
        let error = waited.expect_err("it is never granted");
        assert!(matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Unfit), "{answer:?}: {error}");
        let asked = asked.load(Ordering::SeqCst);
        assert!(asked < 200, "{answer:?}: it was asked for {asked} times in two seconds");
    }
    Ok(())
}

async fn no_time() -> Checked {
    let server = Redis::start()?;
    for answer in ["*2\r\n$1\r\nx\r\n$1\r\n0\r\n", "*2\r\n$10\r\n1763262000\r\n$2\r\n-1\r\n", "*0\r\n", "+OK\r\n"] {
        let bytes: Arc<[u8]> = answer.as_bytes().into();
        let is_time = |call: &[u8]| call.windows(4).any(|word| word == b"TIME");
        let between = Between::start(server.address(), move |call| match is_time(call) {
            true => Act::Answer(bytes.clone(), false),
            false => Act::Pass,
        })?;
        let connected = tokio::time::timeout(LIMIT, Client::connect(&between.url())).await?;
        let error = connected.expect_err("a time that is none is believed");
        assert!(matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Unfit), "{answer:?}: {error}");
    }
    Ok(())
}

/// Acquires of one moment share a call, and its answer has one fence for all.
async fn many_without_a_fence() -> Checked {
    let server = Redis::start()?;
    for (fence, places) in [("0", ""), ("9007199254740992", ""), ("0", ":-1\r\n:-2\r\n")] {
        let between = Between::start(server.address(), |_| Act::Pass)?;
        let client = Client::connect(&format!("{}?timeout=1s", between.url())).await?;
        let count = places.matches(':').count() + 3;
        let answer = format!("*{count}\r\n:1763262000000000\r\n:{fence}\r\n:64\r\n{places}");
        let (answered, bytes) = (Arc::new(AtomicUsize::new(0)), answer.clone().into_bytes());
        let counted = answered.clone();
        between.now(move |call| {
            // What is sent together comes together.
            let calls = call.windows(7).filter(|word| word == b"EVALSHA").count();
            counted.fetch_add(calls, Ordering::SeqCst);
            if calls == 0 { Act::Pass } else { Act::Answer(bytes.repeat(calls).into(), false) }
        });
        let tries = (0..64).map(|name| {
            let lock = client.lock(format!("n{name}")).expect("a name");
            tokio::spawn(async move { lock.try_acquire().await.map(|attempt| attempt.granted().map(|it| it.fence())) })
        });
        for tried in tries.collect::<Vec<_>>() {
            let granted = tokio::time::timeout(LIMIT, tried).await??;
            assert!(granted.is_err(), "{answer:?}: granted {granted:?}");
        }
        assert!(answered.load(Ordering::SeqCst) > 0, "{answer:?}: nothing was asked");
    }
    Ok(())
}

async fn too_large() -> Checked {
    let server = Redis::start()?;
    let mut list = b"*2000000\r\n".to_vec();
    list.extend(b"$0\r\n\r\n".repeat(2_000_000));
    let endless = [&b"*2\r\n$4\r\nbusy\r\n$400000000\r\n"[..], &vec![b'x'; 60 << 20]].concat();
    let error = [&b"-ERR "[..], &vec![b'x'; 60 << 20], b"\r\n"].concat();
    let long_error = [&b"-ERR \x1b[2J"[..], &vec![b'x'; 60_000], b"\r\n"].concat();
    for answer in [list, endless, error, long_error, b"*1\r\n".repeat(100_000)] {
        let answer: Arc<[u8]> = answer.into();
        let between = Between::start(server.address(), |_| Act::Pass)?;
        let client = Client::connect(&between.url()).await?;
        between.now(move |call| if is_script(call) { Act::Answer(answer.clone(), false) } else { Act::Pass });
        let before = resident()?;
        let error = tokio::time::timeout(LIMIT, client.lock("a")?.try_acquire()).await?.expect_err("it is no answer");
        assert!(matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Unfit), "{error}");
        assert!(error.to_string().len() < 1_000, "{} bytes of error", error.to_string().len());
        assert!(!error.to_string().contains('\u{1b}'), "{error}");
        let grown = resident()?.saturating_sub(before);
        assert!(grown < 100 << 20, "{grown} bytes more than before");
    }
    Ok(())
}

/// How much memory this process has.
fn resident() -> Result<usize, Failure> {
    let pages: usize = std::fs::read_to_string("/proc/self/statm")?.split(' ').nth(1).ok_or("no figure")?.parse()?;
    Ok(pages * 4_096)
}

async fn a_flood_of_hints() -> Checked {
    for layout in ["redisson", "plain"] {
        let server = Redis::start()?;
        let at = format!("{}?layout={layout}&timeout=20s", url(&server));
        let (holder, waiter) = (Client::connect(&at).await?, Client::connect(&at).await?);
        let held = holder.lock("a")?.keep(60 * S).acquire().await?;
        let waiting =
            tokio::spawn(async move { waiter.lock("a")?.acquire_within(LIMIT).await.map(|got| (waiter, got)) });
        until_waiting(&server, "a", 1).await?;
        let client = server.command(&["ZRANGE", "leasehold_line:{a}", "0", "0"])?.texts()?[0].to_owned();
        let stop = Arc::new(AtomicBool::new(false));
        let flood =
            flood(server.address(), &[&format!("leasehold_hint:{client}"), "redisson_lock__channel:{a}"], &stop)?;
        tokio::time::sleep(S).await;
        let calls = || -> Result<i64, Failure> {
            let stats = server.command(&["INFO", "commandstats"])?;
            let evals = stats.text()?.lines().filter(|line| line.starts_with("cmdstat_eval")).map(str::to_owned);
            let calls = evals.filter_map(|line| line.split("calls=").nth(1)?.split(',').next()?.parse::<i64>().ok());
            Ok(calls.sum())
        };
        let before = calls()?;
        tokio::time::sleep(S).await;
        let asked = calls()? - before;
        assert!(asked < 1_000, "{layout}: a neighbour makes one waiter ask {asked} times a second");
        held.release().await?;
        let (_waiter, got) = waiting.await??;
        let got = got.granted().ok_or("the waiter was not served")?;
        stop.store(true, Ordering::SeqCst);
        let told = flood.join().map_err(|_| "the flood failed")?;
        // A server closes a connection that is not read fast enough: then this goes on behind.
        let _ = got.release().await;
        eventually("it is given back", || Ok(number(&server, &["EXISTS", "a"])? == 0)).await?;
        assert!(told > 10_000, "{layout}: {told} hints are no flood");
    }
    Ok(())
}

/// Sends hints as fast as it can; returns their number.
fn flood(
    server: SocketAddr,
    channels: &[&str],
    stop: &Arc<AtomicBool>,
) -> Result<std::thread::JoinHandle<u64>, Failure> {
    let publish = |channel: &&str| format!("*3\r\n$7\r\nPUBLISH\r\n${}\r\n{channel}\r\n$1\r\na\r\n", channel.len());
    let each: String = channels.iter().map(publish).collect();
    let (many, stop) = (each.repeat(200), stop.clone());
    let answers = 200 * channels.len() as u64;
    let mut stream = TcpStream::connect(server)?;
    Ok(std::thread::spawn(move || {
        let (mut told, mut buffer) = (0, vec![0; 1 << 16]);
        while !stop.load(Ordering::SeqCst) && stream.write_all(many.as_bytes()).is_ok() {
            let mut left = answers;
            while left > 0 {
                let Ok(read) = stream.read(&mut buffer) else { return told };
                left = left.saturating_sub(buffer[..read].iter().filter(|byte| **byte == b'\n').count() as u64);
            }
            told += answers;
        }
        told
    }))
}

async fn a_scan_that_never_ends() -> Checked {
    let server = Redis::start()?;
    for layout in ["redisson", "plain"] {
        let between = Between::start(server.address(), |_| Act::Pass)?;
        let client = Client::connect(&format!("{}?layout={layout}", between.url())).await?;
        let asked = AtomicUsize::new(0);
        between.now(move |call| {
            if !call.windows(4).any(|word| word == b"SCAN") {
                return Act::Pass;
            }
            let at = asked.fetch_add(1, Ordering::SeqCst);
            let mut keys = String::new();
            for key in 0..1_000 {
                let key = format!("leasehold_fence:{{n{at}-{key}}}");
                keys += &format!("${}\r\n{key}\r\n", key.len());
            }
            Act::Answer(format!("*2\r\n$1\r\n7\r\n*1000\r\n{keys}").into_bytes().into(), false)
        });
        let error = tokio::time::timeout(Duration::from_secs(110), client.list("")).await?.expect_err("it never ends");
        assert!(error.to_string().contains("too many"), "{layout}: {error}");
    }
    Ok(())
}
