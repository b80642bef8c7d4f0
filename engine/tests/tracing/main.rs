//! What a program that listens is told of the engine, by the crate `tracing`.

use std::fmt::{Debug, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use engram::query::answer::QueryOptions;
use engram::telemetry::tracing::field::{Field, Visit};
use engram::telemetry::tracing::span::{Attributes, Id, Record};
use engram::telemetry::tracing::{Event, Level, Metadata, Subscriber, subscriber};
use engram::{CreateOptions, Mode, NewObject, Placement, Pool, query};

/// Keeps a line for each operation and event, indented by the operations that it is within.
#[derive(Clone, Default)]
struct Listener {
    lines: Arc<Mutex<Vec<String>>>,
    depth: Arc<AtomicU64>,
    steps: bool,
}

/// Writes fields as ` name=value`.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).expect("a string takes all");
    }
}

impl Listener {
    fn note(&self, what: &str, fields: impl FnOnce(&mut Line)) {
        let indent = self.depth.load(Ordering::Relaxed) as usize;
        let mut line = Line(format!("{:indent$}{what}", ""));
        fields(&mut line);
        self.lines.lock().expect("no panic").push(line.0);
    }

    /// The lines so far, which it forgets.
    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock().expect("no panic"))
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.steps || *metadata.level() <= Level::DEBUG
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.note(span.metadata().name(), |line| span.record(line));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.note(event.metadata().target(), |line| event.record(line));
    }

    fn enter(&self, _: &Id) {
        self.depth.fetch_add(1, Ordering::Relaxed);
    }

    fn exit(&self, _: &Id) {
        self.depth.fetch_sub(1, Ordering::Relaxed);
    }
}

fn created(path: &Path) -> Pool {
    let options = CreateOptions { size: 64 << 20, force: true, ..CreateOptions::default() };
    Pool::create(path, &options).expect("a pool")
}

#[test]
fn operations_are_told_with_what_they_are_done_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = &folder.path().join("pool");
    let listener = Listener::default();
    subscriber::with_default(listener.clone(), || {
        let pool = created(path);
        let told = listener.taken();
        assert_eq!(told[0], format!("pool.create pool={} size=67108864", path.display()));
        assert!(told.contains(&format!(" pool.open pool={} mode=ReadWrite", path.display())));

        let all = pool.namespace("default").expect("the namespace");
        let batch = all.batch().expect("a batch");
        for name in ["a", "b"] {
            let object = NewObject::blob();
            all.put(all.root(), name, &object, b"secret", Placement::default()).expect("a put");
        }
        batch.commit().expect("a commit");
        let told = listener.taken();
        assert!(told.contains(&"batch.commit".to_owned()), "{told:?}");

        let named = query::parse("@name = \"a\"").expect("a query");
        let found = all.query(&named, &QueryOptions::default()).expect("an answer");
        assert_eq!(found.oids.len(), 1);
        let told = listener.taken();
        assert!(told.iter().any(|line| line.starts_with("query text=@name = ")), "{told:?}");

        pool.close();
        engram::verify(path).expect("a report");
        let told = listener.taken();
        assert_eq!(told[0], format!("verify pool={}", path.display()));
        Pool::destroy(path).expect("it goes");
        let told = listener.taken();
        assert!(told.contains(&format!("pool.destroy pool={}", path.display())), "{told:?}");
    });
    assert_eq!(listener.depth.load(Ordering::Relaxed), 0, "each operation has ended");
}

#[test]
fn steps_are_told_within_their_commit_and_values_never() {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = created(&folder.path().join("pool"));
    let all = pool.namespace("default").expect("the namespace");
    let listener = Listener { steps: true, ..Listener::default() };
    subscriber::with_default(listener.clone(), || {
        let object = NewObject::blob();
        all.put(all.root(), "a", &object, b"secret", Placement::default()).expect("a put");
    });
    let told = listener.taken();
    let begun = told.iter().position(|line| line == "commit").expect("a commit");
    let committed = " engram::step step=\"commit.committed\"".to_owned();
    assert!(told[begun..].contains(&committed), "{told:?}");
    let all_told = told.join("\n");
    assert!(!all_told.contains("secret") && !all_told.contains("115, 101, 99"), "{all_told}");
}

#[test]
fn nobody_who_listens_to_less_is_told_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = &folder.path().join("pool");
    created(path).close();
    let listener = Listener::default();
    subscriber::with_default(listener.clone(), || {
        let pool = Pool::open(path, Mode::ReadWrite, true).expect("a pool");
        let all = pool.namespace("default").expect("the namespace");
        let put = |name| {
            let object = NewObject::blob();
            all.put(all.root(), name, &object, b"value", Placement::default()).expect("a put");
            listener.taken()
        };
        put("a"); // the first one of a process also looks whether the index needs work
        assert_eq!(put("b"), [""; 0]);
    });
}
