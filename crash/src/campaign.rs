//! The campaign: who is killed, when and where, and the table at the end.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use engram::faults::ALL;

use crate::board::{FIRST_PROGRAM, PROGRAMS, STEPS, Trap, WRITERS, WRITING, is_program};
use crate::crew::{Crew, Fault};
use crate::data::Random;
use crate::machine::{adopt_orphans, rest};
use crate::operation::Urge;

/// Kills between two looks at everything.
const LOOK_EVERY: u64 = 40;
/// Kills of one pool; then everything is deleted, and the next is made.
const POOL_KILLS: u64 = 120;
/// How long a worker has to come to a step, and half as much more for each time that nobody came to
/// it: others may keep the machine busy.
const TRAP_MILLIS: u64 = 400;
/// The longest of that.
const TRAP_MILLIS_MOST: u64 = 4000;
/// How long others may come to wait for one that stands still.
const QUEUE_MILLIS: u64 = 3;

/// After so many times the kills that were asked for, a step that nobody reaches is a fault.
const GIVE_UP: u64 = 4;

/// Protocols that workers do not run, or not to the end. Processes that do are killed at each of
/// their steps by tests of their own: `engine/tests/pools/backup.rs` and `upgrade.rs`,
/// `moves/copy_kill.rs`, `space/compact.rs` and `vacant.rs`, `store/slab.rs`, `users/modes.rs`;
/// files are flushed where media need it, in `power/`; what only an older engine, or a run of which
/// nothing lives, leads to is in `engine/columns/src/runs/kills.rs`.
const ELSEWHERE: [&str; 13] = [
    "backup.",
    "compact.",
    "copy.",
    "file.flushed",
    "index.runs-given-up",
    "index.runs-gone",
    "join.",
    "mode.",
    "move-out.",
    "occupy.",
    "slab.",
    "upgrade.",
    "vacate.",
];

/// Whether workers come to a step.
pub fn is_ours(step: &str) -> bool {
    !ELSEWHERE.iter().any(|protocol| step.starts_with(protocol))
}

/// The number of a step.
///
/// # Panics
///
/// If workers come to none of that name.
pub fn number(name: &str) -> usize {
    let found = ours().into_iter().find(|step| ALL[*step] == name);
    found.unwrap_or_else(|| panic!("there is no step {name}: see engine/base/src/faults.rs"))
}

/// The numbers of the steps that workers come to.
fn ours() -> Vec<usize> {
    (0..ALL.len()).filter(|step| is_ours(ALL[*step])).collect()
}

/// Where another is to have died before somebody comes to a step, and what leads it there.
fn before(step: &str) -> Option<(&'static str, Urge)> {
    match step {
        "file.tail-taken" => Some(("file.extended", Urge::Crowd)),
        _ if step.starts_with("dead.") => Some(("reserve.pinned", Urge::Large)),
        _ => None,
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// From which everything follows, as far as the machine's scheduling allows.
    pub seed: u64,
    /// How many kills at least.
    pub kills: u64,
    /// How often each step must have been died at, at least.
    pub each: u64,
    /// The one step that processes are led to, by its number; otherwise they are led to all.
    pub only: Option<usize>,
}

/// What happened.
pub struct Outcome {
    /// Deaths at each step, in the order of `ALL`.
    pub at_step: Vec<u64>,
    /// Deaths of processes that stood still at each step, with all their locks.
    pub held: Vec<u64>,
    /// Deaths of programs at each step.
    pub programs_at_step: Vec<u64>,
    /// Deaths of programs, wherever.
    pub programs: u64,
    /// How often programs passed each step.
    pub passed_by_programs: Vec<u64>,
    /// Deaths at any instant, of one process.
    pub alone: u64,
    /// Deaths at one instant with others.
    pub together: u64,
    /// How often each step was passed.
    pub passed: Vec<u64>,
    /// Operations acknowledged.
    pub acknowledged: u64,
    /// Operations pending at a death that were done, and that were not.
    pub pending: [u64; 2],
    /// Lives of processes.
    pub lives: u64,
    /// Single checks.
    pub checks: u64,
    /// Looks at everything, with `verify`.
    pub looks: u64,
    /// How long the first opening after each death took, ascending, in nanoseconds.
    pub opens: Vec<u64>,
    /// The same until the namespace was open, and the moves of the dead were ended.
    pub views: Vec<u64>,
    /// How long it all took.
    pub time: Duration,
}

impl Outcome {
    /// All kills.
    pub fn kills(&self) -> u64 {
        let at_steps = self.at_step.iter().chain(&self.held).chain(&self.programs_at_step);
        self.alone + self.together + at_steps.sum::<u64>()
    }
}

/// One campaign.
struct Campaign {
    crew: Crew,
    random: Random,
    plan: Plan,
    at_step: Vec<u64>,
    held: Vec<u64>,
    programs_at_step: Vec<u64>,
    missed: Vec<u64>,
    missed_by_programs: Vec<u64>,
    alone: u64,
    together: u64,
    looks: u64,
}

/// Runs a campaign in a folder.
///
/// # Errors
///
/// The first thing that is wrong.
pub fn run(plan: Plan, dir: &Path, library: PathBuf) -> Result<Outcome, Fault> {
    assert!(ALL.len() <= STEPS, "the board has room for {STEPS} steps");
    adopt_orphans();
    let began = Instant::now();
    let zeros = vec![0; ALL.len()];
    let mut campaign = Campaign {
        crew: Crew::new(dir.join("pool"), library, plan.seed),
        random: Random(plan.seed ^ 0x5EED),
        plan,
        at_step: zeros.clone(),
        held: zeros.clone(),
        programs_at_step: zeros.clone(),
        missed: zeros.clone(),
        missed_by_programs: zeros,
        alone: 0,
        together: 0,
        looks: 0,
    };
    while !campaign.is_done() {
        campaign.one_pool()?;
        let (kills, missing) = (campaign.kills(), campaign.missing());
        let told =
            if missing.len() > 12 { String::new() } else { format!(": {}", missing.join(", ")) };
        eprintln!("{kills} kills; steps to be died at yet: {}{told}", missing.len());
        if kills > plan.kills.saturating_mul(GIVE_UP) {
            return Err(format!("nobody comes often enough to {}", missing.join(", ")));
        }
    }
    let Campaign { crew, at_step, held, programs_at_step, alone, together, looks, .. } = campaign;
    let sorted = |mut times: Vec<u64>| {
        times.sort_unstable();
        times
    };
    let [opens, views] = [&crew.figures.opens, &crew.figures.views].map(|t| sorted(t.clone()));
    Ok(Outcome {
        passed_by_programs: (0..ALL.len()).map(|step| crew.passed_by_programs(step)).collect(),
        programs: crew.figures.programs,
        programs_at_step,
        passed: (0..ALL.len()).map(|step| crew.passed(step)).collect(),
        checks: crew.checks(),
        acknowledged: crew.figures.acknowledged,
        pending: crew.figures.pending,
        lives: crew.figures.lives,
        at_step,
        held,
        alone,
        together,
        looks,
        opens,
        views,
        time: began.elapsed(),
    })
}

impl Campaign {
    fn kills(&self) -> u64 {
        let at_steps = self.at_step.iter().chain(&self.held).chain(&self.programs_at_step);
        self.alone + self.together + at_steps.sum::<u64>()
    }

    /// Half of all kills are to be programs'.
    fn is_done(&self) -> bool {
        self.kills().min(2 * self.crew.figures.programs) >= self.plan.kills
            && self.missing().is_empty()
    }

    /// Whether a program is to be killed next.
    fn is_a_programs_turn(&self) -> bool {
        2 * self.crew.figures.programs <= self.kills()
    }

    /// The steps that processes are led to.
    fn steps(&self) -> Vec<usize> {
        self.plan.only.map_or_else(ours, |only| vec![only])
    }

    /// The steps that were not died at often enough.
    fn missing(&self) -> Vec<String> {
        let few = self.steps().into_iter().filter(|step| self.at_step[*step] < self.plan.each);
        let text = |step: usize| {
            let (missed, passed) = (self.missed[step], self.crew.passed(step));
            let died = self.at_step[step];
            format!("{} ({died} died, {missed} missed, {passed} passed)", ALL[step])
        };
        few.map(text).collect()
    }

    fn one_pool(&mut self) -> Result<(), Fault> {
        self.crew.begin()?;
        let end = self.kills() + POOL_KILLS;
        let mut look = self.kills() + LOOK_EVERY;
        while self.kills() < end && !self.is_done() {
            match self.random.below(100) {
                0..20 => self.kill_at_random(1)?,
                20..30 => {
                    let many = 2 + self.random.below(4) as usize;
                    self.kill_at_random(many)?;
                }
                30..40 => self.hold()?,
                _ => self.spring()?,
            }
            if self.kills() >= look {
                self.crew.look_at_all()?;
                self.looks += 1;
                look = self.kills() + LOOK_EVERY;
            }
        }
        self.together += self.crew.end()?;
        self.looks += 1;
        Ok(())
    }

    /// Kills some after a moment.
    fn kill_at_random(&mut self, many: usize) -> Result<(), Fault> {
        rest(Duration::from_micros(self.random.below(6000)));
        let mut living = self.crew.living();
        if self.is_a_programs_turn() {
            living.retain(|slot| is_program(*slot));
        }
        let mut chosen = Vec::new();
        while chosen.len() < many && !living.is_empty() {
            chosen.push(living.swap_remove(self.random.below(living.len() as u64) as usize));
        }
        self.crew.kill(&chosen)?;
        let kills = self.crew.reap()?;
        if chosen.len() > 1 {
            self.together += kills;
        } else {
            self.alone += kills;
        }
        Ok(())
    }

    /// The step that was least died at, those that are hard to reach less often; after the kills
    /// that were asked for, one of those that were not died at often enough.
    fn next_step(&mut self) -> usize {
        let mut order = self.steps();
        if self.kills() >= self.plan.kills {
            let few = |step: &usize| self.at_step[*step] < self.plan.each;
            if order.iter().any(few) {
                order.retain(few);
            }
        }
        let by = self.random.below(order.len() as u64) as usize;
        order.rotate_left(by);
        let score = |step: &usize| self.at_step[*step] * 4 + self.missed[*step];
        order.into_iter().min_by_key(score).expect("there are steps")
    }

    /// The steps that programs have come to.
    fn met_by_programs(&self) -> Vec<usize> {
        let mut steps = ours();
        steps.retain(|step| self.crew.passed_by_programs(*step) > 0);
        steps
    }

    /// A worker to be led to a step; its child, if it is the child's.
    fn lead(&mut self, step: usize, program: bool) -> Result<(usize, usize), Fault> {
        let name = ALL[step];
        let (first, many) = if program { (FIRST_PROGRAM, PROGRAMS) } else { (0, WRITERS) };
        let parent = first + self.random.below(many as u64) as usize;
        let child = parent + many;
        if name.starts_with("fork.") && self.crew.living().contains(&child) {
            self.crew.kill(&[child])?;
            self.alone += self.crew.reap()?;
        }
        let slot = if matches!(name, "fork.adopted" | "fork.opened") { child } else { parent };
        self.crew.slot(parent).urge.store(Urge::towards(name) as u32, SeqCst);
        Ok((slot, parent))
    }

    /// How long workers have to come to a step.
    fn patience(&self, step: usize) -> Duration {
        let most = TRAP_MILLIS.saturating_mul(1 + self.missed[step] / 2);
        Duration::from_millis(most.min(TRAP_MILLIS_MOST))
    }

    /// Waits until the trap of one of these workers has sprung, which stands at this step.
    fn await_any(&mut self, step: usize, slots: &[usize]) {
        let until = Instant::now() + self.patience(step);
        while Instant::now() < until && !slots.iter().any(|slot| self.crew.has_died(*slot, 0)) {
            rest(Duration::from_micros(100));
        }
    }

    /// Waits until a worker's trap has sprung; whether it has.
    fn await_trap(&mut self, slot: usize, dies: bool) -> bool {
        let until = Instant::now() + Duration::from_millis(TRAP_MILLIS);
        while Instant::now() < until {
            let sprung = self.crew.slot(slot).sprung_at().is_some();
            if sprung && (!dies || self.crew.has_died(slot, 1000)) {
                return true;
            }
            rest(Duration::from_micros(100));
        }
        false
    }

    /// Lets a program die at the step that it comes to and died least at.
    fn spring_a_program(&mut self) -> Result<(), Fault> {
        let mut order = self.met_by_programs();
        if order.is_empty() {
            return self.kill_at_random(1);
        }
        let by = self.random.below(order.len() as u64) as usize;
        order.rotate_left(by);
        let score = |step: &usize| self.programs_at_step[*step] + self.missed_by_programs[*step];
        let step = order.into_iter().min_by_key(score).expect("there are steps");
        let (slot, parent) = self.lead(step, true)?;
        let passes = self.random.below(3) as u32;
        self.crew.slot(slot).arm(step, passes, Trap::Die);
        let died = self.await_trap(slot, true);
        self.crew.slot(slot).disarm();
        self.crew.slot(parent).disarm();
        self.programs_at_step[step] += u64::from(died);
        self.missed_by_programs[step] += u64::from(!died);
        self.crew.reap().map(drop)
    }

    /// Lets a worker die at a step.
    fn spring(&mut self) -> Result<(), Fault> {
        if self.is_a_programs_turn() {
            return self.spring_a_program();
        }
        let step = self.next_step();
        if ALL[step] == "file.announced" {
            return self.overtake(step);
        }
        if ALL[step] == "close.sealed" {
            return self.close_alone(step);
        }
        let (slot, parent) = self.lead(step, false)?;
        let other = (parent + 1) % WRITERS;
        if let Some((name, urge)) = before(ALL[step]) {
            // Another dies there, and is not yet reaped.
            let first = ALL.iter().position(|known| *known == name).expect("a step");
            self.crew.slot(other).urge.store(urge as u32, SeqCst);
            self.crew.slot(other).arm(first, 0, Trap::Die);
            if self.await_trap(other, true) {
                self.at_step[first] += 1;
            } else {
                self.crew.slot(other).disarm();
            }
        }
        // What is rare is met at once.
        let rare = self.crew.passed(step) < 2000;
        let passes = if rare { 0 } else { self.random.below(3) as u32 };
        self.crew.slot(slot).arm(step, passes, Trap::Die);
        let mut trapped = vec![slot];
        // Who maintains the index does so for all; who comes first finds what a death has left, of
        // a file that is everybody's, or in a lease; and a new span is mapped once by each.
        let urge = Urge::towards(ALL[step]);
        if matches!(urge, Urge::Index | Urge::Crowd | Urge::View) || ALL[step].starts_with("dead.")
        {
            let first = before(ALL[step]).map(|_| other);
            for other in (0..WRITERS).filter(|other| *other != slot && Some(*other) != first) {
                self.crew.slot(other).urge.store(urge as u32, SeqCst);
                self.crew.slot(other).arm(step, passes, Trap::Die);
                trapped.push(other);
            }
        }
        self.await_any(step, &trapped);
        let urged = [parent].into_iter().chain(trapped.iter().copied());
        urged.for_each(|slot| self.crew.slot(slot).disarm());
        let mut died = 0;
        for slot in trapped {
            if self.crew.slot(slot).sprung_at() == Some(step) {
                died += 1;
                if !self.crew.has_died(slot, 10_000) {
                    return Err(format!("worker {slot} does not die at {}", ALL[step]));
                }
            }
        }
        self.at_step[step] += died;
        self.missed[step] += u64::from(died == 0);
        self.crew.reap().map(drop)
    }

    /// Lets a worker stand still between what a file's head announces and its commit, and whoever
    /// finds it so die: a reader, another worker, or a program.
    fn overtake(&mut self, step: usize) -> Result<(), Fault> {
        let (writer, reader) = (self.random.below(WRITERS as u64) as usize, WRITING);
        let mapped = ALL.iter().position(|name| *name == "file.mapped").expect("a step");
        self.crew.slot(writer).urge.store(Urge::Crowd as u32, SeqCst);
        self.crew.slot(writer).arm(mapped, 0, Trap::Hold);
        if !self.await_trap(writer, false) {
            self.crew.slot(writer).disarm();
            self.missed[step] += 1;
            return self.crew.reap().map(drop);
        }
        let all = (0..WRITERS).chain(FIRST_PROGRAM..FIRST_PROGRAM + PROGRAMS).chain([reader]);
        let others: Vec<usize> = all.filter(|slot| *slot != writer).collect();
        for slot in &others {
            self.crew.slot(*slot).urge.store(Urge::Crowd as u32, SeqCst);
            self.crew.slot(*slot).arm(step, 0, Trap::Die);
        }
        // A file that has its first segment is not yet known to have any: then nobody comes.
        let until = Instant::now() + Duration::from_millis(TRAP_MILLIS);
        let sprung = |slot: &usize| self.crew.slot(*slot).sprung_at() == Some(step);
        while Instant::now() < until && !others.iter().any(sprung) {
            rest(Duration::from_micros(100));
        }
        for slot in &others {
            self.crew.slot(*slot).disarm();
        }
        let mut dying: Vec<usize> = others.into_iter().filter(sprung).collect();
        let died = dying.len() as u64;
        dying.push(writer);
        self.crew.kill(&dying)?;
        self.crew.slot(writer).disarm();
        self.at_step[step] += died;
        self.missed[step] += u64::from(died == 0);
        self.held[mapped] += 1;
        self.crew.reap().map(drop)
    }

    /// Kills everybody but one worker, which then dies at a step of its close: the last process
    /// that has a namespace open does more at its end.
    fn close_alone(&mut self, step: usize) -> Result<(), Fault> {
        let last = self.random.below(WRITERS as u64) as usize;
        let others: Vec<usize> =
            self.crew.living().into_iter().filter(|slot| *slot != last).collect();
        self.crew.kill(&others)?;
        self.crew.slot(last).urge.store(Urge::Reopen as u32, SeqCst);
        self.crew.slot(last).arm(step, 0, Trap::Die);
        self.await_any(step, &[last]);
        self.crew.slot(last).disarm();
        let died = self.crew.slot(last).sprung_at() == Some(step);
        if died && !self.crew.has_died(last, 10_000) {
            return Err(format!("worker {last} does not die at {}", ALL[step]));
        }
        self.at_step[step] += u64::from(died);
        self.missed[step] += u64::from(!died);
        self.together += self.crew.reap()?.saturating_sub(u64::from(died));
        Ok(())
    }

    /// Lets a worker stand still at a step, with all its locks; others come to wait for it; then it
    /// is killed, perhaps with one of those.
    fn hold(&mut self) -> Result<(), Fault> {
        let program = self.is_a_programs_turn();
        let steps = if program { self.met_by_programs() } else { ours() };
        if steps.is_empty() {
            return self.kill_at_random(1);
        }
        let step = steps[self.random.below(steps.len() as u64) as usize];
        let (slot, parent) = self.lead(step, program)?;
        self.crew.slot(slot).arm(step, 0, Trap::Hold);
        if !self.await_trap(slot, false) {
            self.crew.slot(slot).disarm();
            self.crew.slot(parent).disarm();
            return Ok(());
        }
        rest(Duration::from_millis(QUEUE_MILLIS));
        let mut dying = vec![slot];
        let living = self.crew.living();
        let other = living[self.random.below(living.len() as u64) as usize];
        if other != slot && self.random.percent(40) {
            dying.push(other);
        }
        self.crew.kill(&dying)?;
        self.crew.slot(parent).disarm();
        self.held[step] += 1;
        self.together += self.crew.reap()?.saturating_sub(1);
        Ok(())
    }
}
