//! The table at the end of a campaign.

use std::fmt::Display;

use engram::faults::ALL;

use crate::campaign::{Outcome, Plan, is_ours};

/// Milliseconds of nanoseconds.
fn millis(ns: u64) -> String {
    format!("{:.2} ms", ns as f64 / 1e6)
}

/// How long things took, of times in ascending order.
fn spread(times: &[u64]) -> String {
    let at = |hundredth: usize| times.get(times.len() * hundredth / 100).copied().unwrap_or(0);
    let (median, late, worst) = (at(50), at(99), times.last().copied().unwrap_or(0));
    format!("median {}, 99 % {}, worst {}", millis(median), millis(late), millis(worst))
}

/// A line of the table.
fn row<T: Display>(name: &str, [at, held, passed, by_programs, passed_by_them]: [T; 5]) -> String {
    format!("{name:<28} {at:>8} {held:>8} {passed:>12} {by_programs:>14} {passed_by_them:>16}")
}

/// What happened, as text.
pub fn table(plan: &Plan, outcome: &Outcome) -> String {
    let mut lines = vec![
        row("step", ["died at", "held at", "passed", "programs died", "programs passed"]),
        format!("{:-<28} {:->8} {:->8} {:->12} {:->14} {:->16}", "", "", "", "", "", ""),
    ];
    let ours: Vec<usize> = (0..ALL.len()).filter(|step| is_ours(ALL[*step])).collect();
    for &step in &ours {
        let name = ALL[step];
        let (by_programs, passed) = (outcome.programs_at_step[step], outcome.passed[step]);
        let [at, held] = [outcome.at_step[step], outcome.held[step]];
        let figures = [at, held, passed, by_programs, outcome.passed_by_programs[step]];
        lines.push(row(name, figures));
    }
    let at_steps: u64 = outcome.at_step.iter().sum();
    let held: u64 = outcome.held.iter().sum();
    let by_programs: u64 = outcome.programs_at_step.iter().sum();
    let met = ours.iter().filter(|step| outcome.passed_by_programs[**step] > 0).count();
    let died = ours.iter().filter(|step| outcome.programs_at_step[**step] > 0).count();
    let minutes = outcome.time.as_secs_f64() / 60.0;
    lines.extend([
        String::new(),
        format!("kills                          {}", outcome.kills()),
        format!("  at a step                    {at_steps}, each of {} at least {}", ours.len(), {
            ours.iter().map(|step| outcome.at_step[*step]).min().unwrap_or(0)
        }),
        format!("  standing at a step           {held}, others waiting"),
        format!("  of programs at a step        {by_programs}, at {died} of the {met} they met"),
        format!("  at any instant, alone        {}", outcome.alone),
        format!("  at any instant, together     {}", outcome.together),
        format!("  each minute                  {:.0}", outcome.kills() as f64 / minutes),
        format!("preloaded programs killed      {}", outcome.programs),
        format!("lives of processes             {}", outcome.lives),
        format!("operations acknowledged        {}", outcome.acknowledged),
        format!(
            "pending at a death             {} done, {} not",
            { outcome.pending[0] },
            outcome.pending[1]
        ),
        format!("looks at everything (verify)   {}", outcome.looks),
        format!("single checks                  {}", outcome.checks),
        format!("first opening after a death    {}", spread(&outcome.opens)),
        format!("  with what the dead moved     {}", spread(&outcome.views)),
        "losses                         0".to_owned(),
        format!("seed                           {}", plan.seed),
    ]);
    lines.join("\n")
}
