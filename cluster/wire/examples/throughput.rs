//! How fast a part gets into the memory of another node, beside loops that do nothing else.
//!
//! `cargo run --release -p engram-wire --example throughput -- [MIB] [ROUNDS]`
//!
//! A file of tmpfs goes over loopback into mapped memory: by a bare loop (`sendfile` on one side,
//! `recv` on the other, with and without the checksum), by a pull, by a pull under TLS, and by
//! OpenSSL's raw stream (Python's `ssl`, no HTTP, no checksum), with the cipher that a pull has and
//! with OpenSSL's own choice. Rounds alternate; what is printed are medians, and ratios of
//! medians. Last come round trips of 64 bytes.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use engram_base::checksum::RunningChecksum;
use engram_wire::{
    Ask, Authority, Client, Content, FileRange, Handler, Limits, Pull, Request, Response, Server,
    Tls, Within,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

const OPENSSL: &str = r#"
import mmap, os, socket, ssl, sys, time
folder, source, target, touch = sys.argv[1:]
size = os.path.getsize(source)
listener = socket.create_server(("127.0.0.1", 0))
files = dict(certfile=f"{folder}/n1.pem", keyfile=f"{folder}/n1.key")
if os.fork() == 0:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(**files)
    context.load_verify_locations(f"{folder}/ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    connection = context.wrap_socket(listener.accept()[0], server_side=True)
    with open(source, "rb") as file:
        view = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
    connection.recv(1)
    for at in range(0, size, 1 << 18):
        connection.sendall(view[at : at + (1 << 18)])
    connection.recv(1)
    os._exit(0)
with open(target, "r+b") as file:
    into = memoryview(mmap.mmap(file.fileno(), size))
if touch == "1":
    for at in range(0, size, 4096):
        into[at] = 0
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.load_cert_chain(**files)
context.load_verify_locations(f"{folder}/ca.pem")
connection = context.wrap_socket(
    socket.create_connection(listener.getsockname()), server_hostname="127.0.0.1"
)
begun = time.perf_counter()
connection.send(b"x")
at = 0
while at < size:
    at += connection.recv_into(into[at : at + (1 << 18)])
print(time.perf_counter() - begun, connection.cipher()[0], flush=True)
"#;

/// Memory of a file of its own on tmpfs, as a pool's is.
struct Mapped {
    memory: *mut u8,
    len: usize,
}

impl Mapped {
    fn new(path: &Path, len: usize, touched: bool) -> Mapped {
        let _ = std::fs::remove_file(path);
        let file =
            OpenOptions::new().read(true).write(true).create_new(true).open(path).expect("made");
        file.set_len(len as u64).expect("as long as it is to be");
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses a place, and the file is nobody else's.
        let memory = unsafe { mmap(std::ptr::null_mut(), len, flags, MapFlags::SHARED, &file, 0) };
        let mut mapped = Mapped { memory: memory.expect("mapped").cast(), len };
        if touched {
            mapped.bytes().fill(0);
        }
        mapped
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: so many bytes are mapped, and nobody else has them.
        unsafe { std::slice::from_raw_parts_mut(self.memory, self.len) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: what was mapped, and whose bytes nobody has any more.
        let _ = unsafe { munmap(self.memory.cast(), self.len) };
    }
}

/// The loop that nothing can be faster than.
fn bare(source: &Path, into: &mut [u8], sums: bool) -> f64 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let file = File::open(source).expect("opened");
    let size = into.len();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (mut socket, _) = listener.accept().expect("accepted");
            socket.read_exact(&mut [0]).expect("asked");
            let mut at = 0;
            while (at as usize) < size {
                let left = (size - at as usize).min(1 << 20);
                rustix::fs::sendfile(&socket, &file, Some(&mut at), left).expect("sent");
            }
        });
        let mut socket = TcpStream::connect(address).expect("connected");
        let begun = Instant::now();
        socket.write_all(b"x").expect("asked");
        let (mut at, mut sum) = (0, RunningChecksum::new());
        while at < size {
            let end = size.min(at + (256 << 10));
            let len = socket.read(&mut into[at..end]).expect("received");
            assert!(len > 0);
            if sums {
                sum.add(&into[at..at + len]);
            }
            at += len;
        }
        std::hint::black_box(sum.word());
        begun.elapsed().as_secs_f64()
    })
}

/// Memory that begins where that of `malloc` does: 16 bytes behind the beginning of a page.
fn of_malloc(into: &mut Mapped) -> &mut [u8] {
    &mut into.bytes()[16..]
}

fn pulled(client: &Client, server: &Server, into: &mut [u8], connections: usize) -> f64 {
    let address = server.address().to_string();
    let total = into.len().next_multiple_of(1 << 20) as u64;
    let within = Some(Within { from: 0, total });
    let how = Pull { within, connections, ..Pull::default() };
    client.get(&address, "/small", &Ask::default()).expect("a connection");
    let begun = Instant::now();
    client
        .pull(&[&address], "/part", into, &how, &mut |_| ControlFlow::Continue(()))
        .expect("pulled");
    begun.elapsed().as_secs_f64()
}

fn openssl(folder: &Path, source: &Path, target: &Path, touched: bool, suite: &str) -> f64 {
    let config = folder.join("openssl.cnf");
    let sections = "openssl_conf = a\n[a]\nssl_conf = b\n[b]\nsystem_default = c\n[c]\n";
    let text = format!("{sections}Ciphersuites = {suite}\n");
    std::fs::write(&config, text).expect("written");
    let mut child = Command::new("python3")
        .args(["-c", OPENSSL])
        .args([folder, source, target])
        .arg(if touched { "1" } else { "0" })
        .env("OPENSSL_CONF", &config)
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("read");
    child.wait().expect("ended");
    assert!(line.contains(suite), "{line}");
    line.split(' ').next().and_then(|word| word.parse().ok()).expect("seconds")
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn round_trip(client: &Client, server: &Server) -> f64 {
    let address = server.address().to_string();
    let ask = Ask::default();
    let times: Vec<f64> = (0..3000)
        .map(|_| {
            let begun = Instant::now();
            client.get(&address, "/small", &ask).expect("answered");
            begun.elapsed().as_secs_f64()
        })
        .collect();
    median(&times) * 1e3
}

fn bare_round_trip() -> f64 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("accepted");
        socket.set_nodelay(true).expect("set");
        let mut bytes = [0; 64];
        while socket.read_exact(&mut bytes).is_ok() {
            socket.write_all(&bytes).expect("sent");
        }
    });
    let mut socket = TcpStream::connect(address).expect("connected");
    socket.set_nodelay(true).expect("set");
    let times: Vec<f64> = (0..3000)
        .map(|_| {
            let (begun, mut bytes) = (Instant::now(), [0; 64]);
            socket.write_all(&bytes).expect("sent");
            socket.read_exact(&mut bytes).expect("received");
            begun.elapsed().as_secs_f64()
        })
        .collect();
    median(&times) * 1e3
}

fn made(path: &Path, size: usize) -> Arc<OwnedFd> {
    let mut file = File::create(path).expect("made");
    let mut state = 88_172_645_463_325_252_u64;
    for _ in 0..size >> 20 {
        let piece: Vec<u8> = (0..1 << 17)
            .flat_map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state.to_le_bytes()
            })
            .collect();
        file.write_all(&piece).expect("written");
    }
    Arc::new(File::open(path).expect("opened").into())
}

fn main() {
    let mut numbers = std::env::args().skip(1).map(|word| word.parse().expect("a number"));
    let size: usize = numbers.next().unwrap_or(1024) << 20;
    let rounds = numbers.next().unwrap_or(5);
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let (source, target) = (folder.path().join("source"), folder.path().join("target"));
    let file = made(&source, size);
    let handler: Arc<dyn Handler> = Arc::new(move |request: Request| {
        if request.path == "/small" {
            return Response::new(200, [7; 64]);
        }
        let (file, guard) = (Arc::clone(&file), Box::new(()));
        Response::of(200, Content::File(FileRange { file, offset: 0, len: size as u64, guard }))
            .with("ETag", "\"1\"")
            .checked(|| true)
    });
    let credentials =
        Authority::new("bench").and_then(|a| a.member("n1", &["127.0.0.1"])).expect("issued");
    credentials.write(folder.path(), "n1").expect("written");
    let tls = Tls::new(&credentials).expect("TLS");
    let any = "127.0.0.1:0".parse().expect("an address");
    let plain = Server::bind(any, None, Limits::default(), Arc::clone(&handler)).expect("started");
    let secure = Server::bind(any, Some(&tls), Limits::default(), handler).expect("started");
    let (client, secure_client) = (Client::new(None), Client::new(Some(&tls)));
    let (aes128, aes256) = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384");
    for touched in [true, false] {
        type Way<'a> = (&'a str, Box<dyn Fn(&mut Mapped) -> f64 + 'a>);
        let ways: [Way<'_>; 10] = [
            ("bare", Box::new(|into| bare(&source, into.bytes(), false))),
            ("bare with sum", Box::new(|into| bare(&source, into.bytes(), true))),
            ("pull", Box::new(|into| pulled(&client, &plain, into.bytes(), 1))),
            ("bare to malloc's", Box::new(|into| bare(&source, of_malloc(into), false))),
            ("pull to malloc's", Box::new(|into| pulled(&client, &plain, of_malloc(into), 1))),
            ("pull by two", Box::new(|into| pulled(&client, &plain, into.bytes(), 2))),
            ("TLS pull", Box::new(|into| pulled(&secure_client, &secure, into.bytes(), 1))),
            ("TLS pull by two", Box::new(|into| pulled(&secure_client, &secure, into.bytes(), 2))),
            (
                "OpenSSL 128",
                Box::new(|_| openssl(folder.path(), &source, &target, touched, aes128)),
            ),
            (
                "OpenSSL 256",
                Box::new(|_| openssl(folder.path(), &source, &target, touched, aes256)),
            ),
        ];
        let mut times = vec![Vec::new(); ways.len()];
        for _ in 0..rounds {
            for ((_, way), times) in ways.iter().zip(&mut times) {
                let mut into = Mapped::new(&target, size, touched);
                times.push(way(&mut into));
            }
        }
        let medians: Vec<f64> = times.iter().map(|times| median(times)).collect();
        println!("{}", if touched { "memory touched before" } else { "memory untouched" });
        for ((name, _), (median, times)) in ways.iter().zip(medians.iter().zip(&times)) {
            let rate = |time: f64| f64::from((size >> 20) as u32) / 1024.0 / time;
            let best = times.iter().copied().fold(f64::MAX, f64::min);
            println!("  {name:16} {:6.2} GiB/s (best {:.2})", rate(*median), rate(best));
        }
        println!("  pull : bare with sum = {:.2}", medians[1] / medians[2]);
        println!("  pull : bare, to malloc's = {:.2}", medians[3] / medians[4]);
        println!("  TLS pull : OpenSSL 128 = {:.2}", medians[8] / medians[6]);
        println!("  TLS pull : OpenSSL 256 = {:.2}", medians[9] / medians[6]);
    }
    println!("64 bytes, there and back: bare {:.3} ms", bare_round_trip());
    println!("  request {:.3} ms", round_trip(&client, &plain));
    println!("  request under TLS {:.3} ms", round_trip(&secure_client, &secure));
}
