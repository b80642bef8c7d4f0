//! Histories that must have no violation, and rules without which one is found.

use engram_protocol::{Rule, Rules};
use engram_simulate::{Setup, inputs, run, run_all, shortest, shown};

fn check(nodes: usize, histories: u64) {
    let setup = Setup { nodes, seconds: 120, rules: Rules::ALL, seed: 0 };
    let (tally, violated) = run_all(&setup, 0..histories);
    if let Some(first) = violated.first() {
        panic!("{} of {histories} histories have a violation\n{}", violated.len(), shown(first));
    }
    // It was no history in which nothing happens.
    assert!(tally.published > histories * 10 && tally.read > histories * 10, "{tally}");
    assert!(tally.struck > histories / 2 && tally.freed > histories, "{tally}");
    println!("{nodes} nodes: {tally}");
}

#[test]
fn few_nodes_keep_the_invariants() {
    check(5, 2000);
}

#[test]
fn dozens_of_nodes_keep_the_invariants() {
    check(64, 50);
}

#[test]
fn a_thousand_nodes_keep_the_invariants() {
    check(1024, 5);
}

/// A rule that is switched off is found within a hundred histories, by what it is for.
fn find(rule: Rule, invariants: &[&str]) {
    find_within(100, rule, invariants);
}

fn find_within(histories: u64, rule: Rule, invariants: &[&str]) {
    let rules = Rules::without(rule);
    let setup = Setup { nodes: 5, seconds: 120, rules, seed: 0 };
    let (_, violated) = run_all(&setup, 0..histories);
    let found: Vec<String> = (violated.iter())
        .filter_map(|setup| run(setup, &inputs(setup)).err())
        .map(|violation| violation.of.to_owned())
        .collect();
    println!("without {rule:?}: {} of {histories}", found.len());
    for invariant in invariants {
        let is_it = |of: &&String| of.starts_with(invariant);
        assert!(found.iter().any(|of| is_it(&of)), "{rule:?} off: no {invariant} in {found:?}");
    }
}

#[test]
fn a_member_that_is_not_fenced_is_found() {
    find(Rule::Fencing, &["I3"]);
}

#[test]
fn a_strike_that_is_too_early_is_found() {
    find(Rule::Patience, &["I3"]);
}

#[test]
fn a_publication_without_guards_is_found() {
    find(Rule::Guard, &["I4"]);
}

#[test]
fn a_node_that_is_taken_for_its_former_self_is_found() {
    find(Rule::Incarnations, &["I4"]);
}

#[test]
fn a_damaged_part_that_counts_again_is_found() {
    find(Rule::Wholeness, &["I4"]);
}

#[test]
fn a_publication_of_a_maker_whose_lease_has_ended_is_found() {
    find(Rule::Makers, &["I4"]);
}

#[test]
fn a_member_that_is_entered_after_its_lease_has_ended_is_found() {
    // A request is late, its member is struck meanwhile, and nobody else writes the name.
    find_within(500, Rule::Entering, &["I4"]);
}

#[test]
fn one_seed_is_one_history_and_its_shortest_is_shorter() {
    let rules = Rules::without(Rule::Patience);
    let setup = Setup { nodes: 5, seconds: 120, rules, seed: 0 };
    let (_, violated) = run_all(&setup, 0..20);
    let setup = violated.first().expect("one of twenty");
    let all = inputs(setup);
    let (once, again) = (run(setup, &all).unwrap_err(), run(setup, &all).unwrap_err());
    assert_eq!((once.at, once.what), (again.at, again.what));
    let short = shortest(setup, &all);
    assert!(short.len() < all.len() / 4, "{} of {}", short.len(), all.len());
    assert!(run(setup, &short).is_err());
}
