//! The crew: which workers live, what they have done, and what is to be there when they have died.

use std::path::PathBuf;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use crate::board::{Board, SLOTS, Slot, WRITING, child_of, is_child, is_program};
use crate::check::{Findings, Gone, after_kill, at_rest, nothing_leaks};
use crate::data::Random;
use crate::machine::{Handle, Shared, children, die_with_parent, fork, me, rest, was_killed};
use crate::model::Model;
use crate::operation::Outcome;
use crate::worker::{Place, Worker};
use crate::{pool, program, reader};

/// When whoever has not come has come to nothing.
const PATIENCE: Duration = Duration::from_secs(60);
/// So many operations are told of a worker that something is wrong with.
const LAST: u64 = 8;
/// Between two looks at the board.
const BLINK: Duration = Duration::from_micros(200);

/// What went wrong.
pub type Fault = String;

/// Counts of what happened.
#[derive(Default)]
pub struct Figures {
    /// Operations acknowledged.
    pub acknowledged: u64,
    /// Of those pending at a death: done, and not done.
    pub pending: [u64; 2],
    /// Programs that were killed.
    pub programs: u64,
    /// Lives that ended.
    pub lives: u64,
    /// How long each first opening after a death took.
    pub opens: Vec<u64>,
    /// The same until the moves of the dead were ended, too.
    pub views: Vec<u64>,
}

/// The workers, and what is known of them.
pub struct Crew {
    board: &'static Shared<Board>,
    library: PathBuf,
    findings: Shared<Findings>,
    path: PathBuf,
    random: Random,
    models: Vec<Model>,
    seen: [u64; SLOTS],
    handles: [Option<Handle>; SLOTS],
    killed: [bool; SLOTS],
    pools: u64,
    /// What happened.
    pub figures: Figures,
}

impl Crew {
    /// A crew for pools at `path`, which is to be made. Its programs run with this library.
    pub fn new(path: PathBuf, library: PathBuf, seed: u64) -> Self {
        Crew {
            board: Box::leak(Box::new(Shared::<Board>::zeroed())),
            library,
            findings: Shared::zeroed(),
            path,
            random: Random(seed),
            models: Vec::new(),
            seen: [0; SLOTS],
            handles: std::array::from_fn(|_| None),
            killed: [false; SLOTS],
            pools: 0,
            figures: Figures::default(),
        }
    }

    /// Makes a pool, and fills every slot.
    pub fn begin(&mut self) -> Result<(), Fault> {
        let path = self.path.clone();
        // Every other one keeps checksums.
        let checksums = self.pools % 2 == 1;
        self.pools += 1;
        if !Findings::of(&self.findings, |_| pool::make(&path, checksums)) {
            return Err("the pool could not be made".to_owned());
        }
        self.models = vec![Model::default(); SLOTS];
        (0..SLOTS).for_each(|slot| self.start(slot));
        Ok(())
    }

    /// The board.
    pub fn slot(&self, slot: usize) -> &'static Slot {
        &self.board.slots[slot]
    }

    /// How often a step was passed.
    pub fn passed(&self, step: usize) -> u64 {
        self.board.passed[step].load(SeqCst)
    }

    /// How often a program passed it.
    pub fn passed_by_programs(&self, step: usize) -> u64 {
        self.board.passed_by_programs[step].load(SeqCst)
    }

    /// How many single checks were made, by checks and by workers.
    pub fn checks(&self) -> u64 {
        let by_workers = self.board.slots.iter().map(|slot| slot.checks.load(SeqCst));
        self.findings.checks.load(SeqCst) + by_workers.sum::<u64>()
    }

    /// Who lives.
    pub fn living(&mut self) -> Vec<usize> {
        self.notice();
        (0..SLOTS).filter(|slot| self.handles[*slot].is_some()).collect()
    }

    /// Begins a life in a slot; of a child's slot, allows it.
    fn start(&mut self, slot: usize) {
        let own = self.slot(slot);
        own.ready.store(0, SeqCst);
        own.renew(self.random.any());
        (self.seen[slot], self.killed[slot]) = (0, false);
        self.models[slot].filed.let_go();
        if is_child(slot) {
            own.ready.store(1, SeqCst);
            return;
        }
        let (path, controller) = (self.path.clone(), me());
        let pid = fork();
        if pid == 0 {
            die_with_parent();
            let place = Place { board: self.board, slot, path, controller };
            match slot {
                WRITING.. => reader::live(&place),
                _ if is_program(slot) => program::start(&place, self.board, &self.library),
                _ => Worker::live(&place),
            }
        }
        own.pid.store(pid, SeqCst);
        self.handles[slot] = Handle::of(pid);
    }

    /// Gets to know the children that workers have forked.
    fn notice(&mut self) {
        for slot in (0..SLOTS).filter(|slot| is_child(*slot)) {
            let pid = self.slot(slot).pid.load(SeqCst);
            if pid != 0 && self.handles[slot].is_none() {
                self.handles[slot] = Handle::of(pid);
                if self.handles[slot].is_none() {
                    // It has died already, and its parent has let it go.
                    self.killed[slot] = true;
                }
            }
        }
    }

    /// Whether the worker in a slot has died, waiting up to so many milliseconds.
    pub fn has_died(&mut self, slot: usize, millis: i32) -> bool {
        self.notice();
        match &self.handles[slot] {
            Some(handle) => handle.ended(millis),
            None => self.slot(slot).pid.load(SeqCst) != 0,
        }
    }

    /// Kills workers, all before any of them is waited for.
    pub fn kill(&mut self, slots: &[usize]) -> Result<(), Fault> {
        for slot in slots {
            self.killed[*slot] = true;
            if let Some(handle) = &self.handles[*slot] {
                handle.kill();
            }
        }
        for slot in slots {
            if !self.has_died(*slot, PATIENCE.as_millis() as i32) {
                return Err(format!("worker {slot} does not die"));
            }
        }
        Ok(())
    }

    /// Whoever has died since: looks at what they have left, and begins their slots anew. How many
    /// of them were killed.
    pub fn reap(&mut self) -> Result<u64, Fault> {
        let dead: Vec<usize> = (0..SLOTS).filter(|slot| self.has_died(*slot, 0)).collect();
        if dead.is_empty() {
            return Ok(0);
        }
        let mut kills = 0;
        let mut gone = Vec::new();
        for slot in &dead {
            kills += u64::from(self.certify(*slot)?);
            if let Some(child) = child_of(*slot) {
                self.await_newborn(child)?;
            }
            if *slot < WRITING {
                gone.push(self.replay(*slot)?);
            }
        }
        let path = self.path.clone();
        if !Findings::of(&self.findings, |findings| after_kill(&path, &gone, findings)) {
            let did: Vec<String> =
                gone.iter().map(|one| self.did(one.slot, self.seen[one.slot])).collect();
            let (did, told) = (did.join("\n"), self.doings().join("; "));
            return Err(format!(
                "after the death of {dead:?}, something is wrong; they did {did}; alive: {told}"
            ));
        }
        self.note_opening();
        let applied = self.findings.applied.load(SeqCst);
        for one in gone {
            let Some(operation) = one.pending else { continue };
            let done = applied >> one.slot & 1 == 1;
            self.figures.pending[usize::from(!done)] += 1;
            self.models[one.slot].tear(&operation);
            if done {
                self.models[one.slot].imagine(&operation);
            }
        }
        for slot in dead {
            self.handles[slot] = None;
            self.start(slot);
        }
        Ok(kills)
    }

    fn note_opening(&mut self) {
        self.figures.opens.push(self.findings.open_ns.load(SeqCst));
        self.figures.views.push(self.findings.view_ns.load(SeqCst));
    }

    /// Whether a worker was killed; an error if it died of anything else but its own end.
    fn certify(&mut self, slot: usize) -> Result<bool, Fault> {
        self.figures.lives += 1;
        let own = self.slot(slot);
        if own.failed.load(SeqCst) != 0 {
            return Err(format!("worker {slot} has failed"));
        }
        let sprung = own.sprung_at().is_some() && own.trap_kind.load(SeqCst) == 0;
        let ended = own.ended.load(SeqCst) != 0;
        let status = self.handles[slot].as_ref().and_then(Handle::reap);
        let fits = match status {
            Some(0) => ended,
            Some(status) => was_killed(status),
            None => ended || sprung || self.killed[slot],
        };
        if !fits {
            return Err(format!("worker {slot} died of itself: wait status {status:x?}"));
        }
        let killed = status.map_or(!ended, was_killed);
        self.figures.programs += u64::from(killed && is_program(slot));
        Ok(killed)
    }

    /// A parent has died: if it was just forking, its child shows itself, or there is none.
    fn await_newborn(&mut self, slot: usize) -> Result<(), Fault> {
        let own = self.slot(slot);
        let until = Instant::now() + PATIENCE;
        while own.ready.load(SeqCst) == 0 && own.pid.load(SeqCst) == 0 {
            let known: Vec<i32> = self.handles.iter().flatten().map(|handle| handle.pid).collect();
            if children().iter().all(|pid| known.contains(pid)) && own.pid.load(SeqCst) == 0 {
                own.ready.store(1, SeqCst);
            }
            if Instant::now() > until {
                return Err(format!("the child in slot {slot} does not show itself"));
            }
            rest(BLINK);
        }
        self.notice();
        Ok(())
    }

    /// Does to the model what a worker has acknowledged since.
    fn replay(&mut self, slot: usize) -> Result<Gone, Fault> {
        let own = self.slot(slot);
        let (acked, started) = (own.acked.load(SeqCst), own.started.load(SeqCst));
        for number in self.seen[slot]..acked {
            let (operation, outcome) = (own.operation(number), own.outcome(number));
            if matches!(outcome, Outcome::Full | Outcome::Busy) {
                // Of what is overwritten, some may be.
                self.models[slot].tear(&operation);
                continue;
            }
            let expected = self.models[slot].imagine(&operation);
            if expected != outcome {
                let told = operation.told();
                let did = self.did(slot, number);
                return Err(format!(
                    "w{slot}: {told} ended with {outcome:?}, not with {expected:?}; before: {did}"
                ));
            }
        }
        self.figures.acknowledged += acked - self.seen[slot];
        self.seen[slot] = acked;
        let pending = (started > acked).then(|| own.operation(acked));
        Ok(Gone { slot, model: self.models[slot].clone(), pending })
    }

    /// What a worker did last before the operation of a number, for people.
    fn did(&self, slot: usize, number: u64) -> String {
        let own = self.slot(slot);
        let last = number.saturating_sub(LAST)..number;
        let told = last.map(|at| format!("{} {:?}", own.operation(at).told(), own.outcome(at)));
        format!("{slot}: {}", told.collect::<Vec<String>>().join(", "))
    }

    fn doings(&mut self) -> Vec<String> {
        self.living().into_iter().map(|slot| self.doing(slot)).collect()
    }

    /// What a worker is at, for people: its operation, and where each of its threads waits.
    fn doing(&self, slot: usize) -> String {
        let own = self.slot(slot);
        let (pid, acked, started) =
            (own.pid.load(SeqCst), own.acked.load(SeqCst), own.started.load(SeqCst));
        let operation = (started > acked).then(|| own.operation(acked));
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let waits: Vec<String> = tasks
            .map(|task| {
                let read = |name| std::fs::read_to_string(task.path().join(name));
                [read("comm"), read("syscall"), read("wchan")]
                    .map(|text| text.unwrap_or_default().trim().to_owned())
                    .join(" ")
            })
            .collect();
        format!(
            "{slot} (process {pid}, parked: {}) is at {operation:?}, its threads wait at {waits:?}",
            own.parked.load(SeqCst)
        )
    }

    /// Lets everybody stand still between two operations, and looks at everything.
    pub fn look_at_all(&mut self) -> Result<(), Fault> {
        self.board.pause.store(1, SeqCst);
        let looked = self.while_parked();
        self.board.pause.store(0, SeqCst);
        looked
    }

    fn while_parked(&mut self) -> Result<(), Fault> {
        let until = Instant::now() + PATIENCE;
        loop {
            self.reap()?;
            let living = self.living();
            let parked = |slot: &usize| self.slot(*slot).parked.load(SeqCst) != 0;
            if living.iter().all(parked) && living == self.living() {
                break;
            }
            if Instant::now() > until {
                let told = self.doings().join("; ");
                return Err(format!("some of these do not stand still: {told}"));
            }
            rest(BLINK);
        }
        let living = self.living();
        let all: Vec<Gone> =
            (0..WRITING).map(|slot| self.replay(slot)).collect::<Result<_, _>>()?;
        let leases = living.iter().filter(|slot| reader::has_lease(**slot)).count();
        let path = self.path.clone();
        if !Findings::of(&self.findings, |found| at_rest(&path, &all, leases, found)) {
            return Err("at rest, something is wrong".to_owned());
        }
        Ok(())
    }

    /// Kills everybody at once, looks at what is left, deletes everything, looks whether every byte
    /// has come back, and removes the pool. How many were killed.
    pub fn end(&mut self) -> Result<u64, Fault> {
        let living = self.living();
        self.kill(&living)?;
        // Nobody begins anew.
        let mut kills = 0;
        let mut gone = Vec::new();
        for slot in living {
            kills += u64::from(self.certify(slot)?);
            if let Some(child) = child_of(slot) {
                self.await_newborn(child)?;
            }
            if slot < WRITING {
                gone.push(self.replay(slot)?);
            }
        }
        for late in self.living() {
            if is_child(late) && !gone.iter().any(|one| one.slot == late) {
                self.kill(&[late])?;
                kills += u64::from(self.certify(late)?);
                gone.push(self.replay(late)?);
            }
        }
        let path = self.path.clone();
        let well = Findings::of(&self.findings, |found| after_kill(&path, &gone, found))
            && Findings::of(&self.findings, |found| {
                at_rest(&path, &[], 0, found);
                nothing_leaks(&path, found);
            });
        self.handles = std::array::from_fn(|_| None);
        if !well {
            return Err("after everybody's death, something is wrong".to_owned());
        }
        self.note_opening();
        std::fs::remove_dir_all(&self.path).map_err(|error| format!("removing: {error}"))?;
        Ok(kills)
    }
}
