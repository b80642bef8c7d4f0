//! Machines by themselves: what they ask, and what they make of replies.

use std::time::Duration;

use engram_protocol::clock::Moment;
use engram_protocol::coordinator::{Change, Guard, Keys, Reply, Request, Row};
use engram_protocol::holdings::{Duty, Held, Holdings};
use engram_protocol::lease::TTL;
use engram_protocol::maker::{Maker, ended_in};
use engram_protocol::manifest::{Boxes, Content, Holder, Manifest, Part};
use engram_protocol::map::{Entry, Identity, Map, State};
use engram_protocol::membership::{Membership, News};
use engram_protocol::publish::{Outcome, Proposal, Publish, Seen};
use engram_protocol::read::{Failure, Fetch, Fetched, Read, Step, Wanted};
use engram_protocol::{Action, Rules};

const S: u64 = 1_000_000_000;

fn identity(boot: &str) -> Identity {
    let text = |text: &str| text.to_owned();
    Identity {
        node: text("n1"),
        pool: text("p1"),
        host: text("h1"),
        path: text("/dev/shm/pool"),
        boot: text(boot),
        address: text("h1:1"),
        weight: 1.0,
        format: 1,
        version: text("0"),
    }
}

fn entry(member: u64, state: State, boot: &str) -> Row {
    let entry = Entry { member, state, since: 0, entered: true, identity: identity(boot) };
    let value = serde_json::to_vec(&entry).unwrap();
    Row { key: Keys::new("c").node("n1"), value, modified: 40 }
}

fn asked<T>(actions: &[Action<T>]) -> (u64, Request) {
    let ask = |action: &Action<T>| match action {
        Action::Ask { token, request } => Some((*token, request.clone())),
        _ => None,
    };
    actions.iter().find_map(ask).expect("something is asked")
}

/// Takes a node to the point at which it has joined as member 7; what it asked for that.
fn joined(rows: Vec<Row>) -> (Membership, Vec<Guard>) {
    let mut node = Membership::new(&Keys::new("c"), identity("b1"), TTL, Rules::ALL);
    let now = Moment(100 * S);
    let actions = node.start(now);
    let (token, _) = asked(&actions);
    let actions = node.reply(now, token, Reply::Rows { revision: 50, rows });
    let (mut token, mut request) = asked(&actions);
    if matches!(request, Request::Get { .. }) {
        // The lease of the member before has ended.
        let none = Reply::Rows { revision: 50, rows: Vec::new() };
        (token, request) = asked(&node.reply(now, token, none));
    }
    assert_eq!(request, Request::Grant { ttl: TTL });
    let actions = node.reply(now, token, Reply::Granted(7));
    let (token, request) = asked(&actions);
    let Request::Commit(join) = request else { panic!("{request:?}") };
    let guards = join.guards.clone();
    let done = Reply::Committed { done: true, revision: 51, rows: Vec::new() };
    let actions = node.reply(now, token, done);
    assert!(actions.contains(&Action::Own(News::Joined { member: 7, entered: false })));
    (node, guards)
}

#[test]
fn a_member_falls_silent_by_its_own_clock_and_speaks_again_when_it_is_heard() {
    let (mut node, _) = joined(Vec::new());
    let at = |seconds: u64| Moment((100 + seconds) * S);
    assert_eq!(node.serves(at(11)), Some(7));
    assert_eq!(node.serves(at(12)), None);
    let actions = node.tick(at(12));
    let (token, request) = asked(&actions);
    assert_eq!(request, Request::Renew { lease: 7 });
    // The lease begins anew from when it was asked, not from when the answer came.
    node.reply(at(20), token, Reply::Renewed(Some(TTL)));
    assert_eq!(node.serves(at(23)), Some(7));
    assert_eq!(node.serves(at(24)), None);
}

#[test]
fn an_answer_that_comes_after_its_question_was_given_up_counts_for_nothing() {
    let (mut node, _) = joined(Vec::new());
    let at = |seconds: u64| Moment((100 + seconds) * S);
    let (late, _) = asked(&node.tick(at(5)));
    let actions = node.tick(at(9));
    let (token, _) = asked(&actions);
    assert_ne!(late, token);
    node.reply(at(10), late, Reply::Renewed(None));
    assert_eq!(node.serves(at(10)), Some(7), "it was told of a renewal that it had given up");
}

#[test]
fn a_row_of_another_host_is_left_until_its_lease_has_ended() {
    let away = entry(3, State::Away, "b0");
    let (_, guards) = joined(vec![away]);
    assert_eq!(guards, [Guard::Unchanged { key: Keys::new("c").node("n1"), modified: 40 }]);
    let mut serving = identity("b0");
    serving.host = "h2".to_owned();
    let other =
        Entry { member: 3, state: State::Serving, since: 0, entered: true, identity: serving };
    let value = serde_json::to_vec(&other).unwrap();
    let row = Row { key: Keys::new("c").node("n1"), value, modified: 40 };
    let (_, guards) = joined(vec![row]);
    assert!(guards.contains(&Guard::Unchanged { key: Keys::new("c").member(3), modified: 0 }));
}

#[test]
fn another_process_of_the_host_goes_on_as_the_same_member() {
    let mut node = Membership::new(&Keys::new("c"), identity("b1"), TTL, Rules::ALL);
    let now = Moment(100 * S);
    let (token, _) = asked(&node.start(now));
    let rows = vec![entry(3, State::Serving, "b1")];
    let actions = node.reply(now, token, Reply::Rows { revision: 50, rows });
    let (token, request) = asked(&actions);
    assert_eq!(request, Request::Renew { lease: 3 });
    let actions = node.reply(now, token, Reply::Renewed(Some(TTL)));
    // Not before its row is written: the process before may have asked to leave.
    assert_eq!(node.serves(now), None);
    let (token, _) = asked(&actions);
    let done = Reply::Committed { done: true, revision: 51, rows: Vec::new() };
    let actions = node.reply(now, token, done);
    assert!(actions.contains(&Action::Own(News::Joined { member: 3, entered: true })));
}

#[test]
fn a_read_ends_at_once_where_the_only_node_is_away() {
    let keys = Keys::new("c");
    let manifest = br#"{"uuid":"u","generation":5,"holders":[{"node":"n1","member":3}],
        "kind":"array","dtype":"<f8","shape":[10],"sealed":false,"replicas":1,
        "parts":[{"o":[0],"n":[10],"h":[0]}]}"#;
    let name = Row { key: keys.name("run/T"), value: manifest.to_vec(), modified: 9 };
    let deadline = Moment(200 * S);
    let wanted = Wanted::All;
    let mut read = Read::new(&keys, "run/T", wanted, None, Map::default(), deadline, Rules::ALL);
    let now = Moment(100 * S);
    let (token, _) = asked(&read.start(now));
    let actions = read.reply(now, token, Reply::Rows { revision: 50, rows: vec![name.clone()] });
    let (token, request) = asked(&actions);
    assert_eq!(request, Request::List { prefix: keys.map() });
    // It answers: it is asked, and fails; then it is away.
    let serving = vec![entry(3, State::Serving, "b1")];
    let actions = read.reply(now, token, Reply::Rows { revision: 50, rows: serving });
    let Some(Action::Own(Step::Fetch(fetch))) = actions.first() else { panic!("{actions:?}") };
    assert_eq!((fetch.address.as_str(), fetch.member, fetch.part), ("h1:1", 3, 0));
    let actions = read.fetched(now, fetch.attempt, Fetched::Failed);
    let suspect = Step::Suspect { node: "n1".to_owned(), member: 3 };
    assert!(actions.contains(&Action::Own(suspect)), "{actions:?}");
    let Some(Action::Own(Step::Failed(Failure::Away(who)))) = actions.last() else {
        panic!("{actions:?}")
    };
    assert_eq!(who.len(), 1);
}

#[test]
fn who_reads_a_group_as_an_array_is_told_that_it_is_one() {
    let keys = Keys::new("c");
    let manifest = br#"{"uuid":"u","generation":5,"holders":[{"node":"n1","member":3}],
        "kind":"node"}"#;
    let (now, until) = (Moment(100 * S), Moment(200 * S));
    let ends = |wanted: Wanted| {
        let mut read = Read::new(&keys, "run", wanted, None, Map::default(), until, Rules::ALL);
        let (token, _) = asked(&read.start(now));
        let row = Row { key: keys.name("run"), value: manifest.to_vec(), modified: 9 };
        read.reply(now, token, Reply::Rows { revision: 50, rows: vec![row] })
    };
    let group = [Action::Own(Step::Failed(Failure::Group))];
    assert_eq!(ends(Wanted::All), group);
    assert_eq!(ends(Wanted::Box { offsets: vec![0], counts: vec![1] }), group);
    assert!(matches!(ends(Wanted::Manifest)[..], [Action::Own(Step::Done { .. })]));
}

/// A part of a manifest, at one holder.
fn manifest(uuid: &str, member: u64) -> Manifest {
    let part = Part { offsets: vec![0], counts: vec![10], holders: vec![0], checksum: Some(1) };
    let boxes = Boxes { shape: vec![10], parts: vec![part], sealed: true, ..Boxes::default() };
    let holders = vec![Holder { node: "n1".to_owned(), member }];
    let content = Content::Array(boxes);
    Manifest { uuid: uuid.to_owned(), generation: 5, holders, content }
}

fn name(path: &str, uuid: &str, member: u64, modified: u64) -> Row {
    let value = manifest(uuid, member).encode();
    Row { key: Keys::new("c").name(path), value, modified }
}

fn plain(key: String, modified: u64) -> Row {
    Row { key, value: Vec::new(), modified }
}

fn proposal(path: &str, seen: Option<(&str, u64)>, uuid: Option<&str>) -> Proposal {
    Proposal {
        path: path.to_owned(),
        seen: seen.map_or(0, |seen| seen.1),
        seen_uuid: seen.map(|seen| seen.0.to_owned()),
        manifest: uuid.map(|uuid| manifest(uuid, 3)),
    }
}

/// A publication that is asked for once, or a second time since no answer came; how it ends where
/// the guards do not hold and these rows are so.
fn not_done(proposals: Vec<Proposal>, unheard: bool, rows: Vec<Row>) -> Vec<Action<Outcome>> {
    let (seen, now) = (Seen { epoch: 4, removed: 4 }, Moment(100 * S));
    let until = Moment(200 * S);
    let mut machine = Publish::new(&Keys::new("c"), 9, proposals, seen, until, Rules::ALL);
    let mut asked_for = asked(&machine.start(now)).0;
    if unheard {
        asked_for = asked(&machine.tick(Moment(103 * S))).0;
    }
    let mut all = vec![plain(Keys::new("c").maker(9), 4), plain(Keys::new("c").epoch(), 4)];
    all.extend(rows);
    let reply = Reply::Committed { done: false, revision: 50, rows: all };
    machine.reply(Moment(104 * S), asked_for, reply)
}

fn removals(modified: u64) -> Row {
    plain(Keys::new("c").removed(), modified)
}

#[test]
fn a_name_that_another_removed_does_not_say_that_the_batch_was_done() {
    let batch =
        || vec![proposal("A", Some(("a", 10)), Some("b")), proposal("B", Some(("c", 11)), None)];
    let rows = vec![name("A", "a", 3, 10), removals(40)];
    let conflict = Action::Own(Outcome::Conflict(vec!["B".to_owned()]));
    assert_eq!(not_done(batch(), false, rows), [conflict]);
    let removes = vec![proposal("A", Some(("a", 10)), None), proposal("B", Some(("c", 11)), None)];
    let rows = vec![name("A", "a", 3, 10), removals(40)];
    let conflict = Action::Own(Outcome::Conflict(vec!["B".to_owned()]));
    assert_eq!(not_done(removes, false, rows), [conflict]);
    // Its own manifest does say so.
    let rows = vec![name("A", "b", 3, 40), removals(40)];
    assert_eq!(not_done(batch(), true, rows), [Action::Own(Outcome::Published(40))]);
}

#[test]
fn what_was_done_unheard_is_not_told_as_refused_and_not_done_again() {
    let publishes = || vec![proposal("A", Some(("a", 10)), Some("b"))];
    let replaced = || vec![name("A", "x", 3, 40)];
    let conflict = Action::Own(Outcome::Conflict(vec!["A".to_owned()]));
    assert_eq!(not_done(publishes(), false, replaced()), [conflict]);
    assert_eq!(not_done(publishes(), true, replaced()), [Action::Own(Outcome::Unknown)]);
    // It was absent, and is: it may have been there in between.
    let absent = || vec![proposal("A", None, Some("b"))];
    assert!(matches!(
        not_done(absent(), false, vec![removals(40)])[0],
        Action::Ask { request: Request::List { .. }, .. }
    ));
    assert_eq!(not_done(absent(), true, vec![removals(40)]), [Action::Own(Outcome::Unknown)]);
}

#[test]
fn a_manifest_of_another_version_is_not_taken_for_the_one_that_was_seen() {
    let odd = Row { key: Keys::new("c").name("A"), value: b"{}".to_vec(), modified: 40 };
    let conflict = Action::Own(Outcome::Conflict(vec!["A".to_owned()]));
    assert_eq!(not_done(vec![proposal("A", None, Some("b"))], false, vec![odd]), [conflict]);
}

#[test]
fn a_member_that_a_copy_of_its_pool_cannot_be_told_from_keeps_its_lease() {
    let keys = Keys::new("c");
    // The last is what a host would say that was booted, too.
    for (host, path, boot) in [
        ("h1", "/dev/shm/copy", "b1"),
        ("h2", "/dev/shm/pool", "b1"),
        ("h1", "/dev/shm/pool", "b2"),
    ] {
        let mut copy = identity(boot);
        (copy.host, copy.path) = (host.to_owned(), path.to_owned());
        let mut node = Membership::new(&keys, copy, TTL, Rules::ALL);
        let mut now = Moment(100 * S);
        let (mut token, _) = asked(&node.start(now));
        let rows = || vec![entry(3, State::Serving, "b1")];
        let member = vec![keys.member(3)];
        for round in 0..3 {
            let actions = node.reply(now, token, Reply::Rows { revision: 50, rows: rows() });
            let (looks, request) = asked(&actions);
            assert_eq!(request, Request::Get { keys: member.clone() });
            if round == 2 {
                let none = Reply::Rows { revision: 50, rows: Vec::new() };
                token = asked(&node.reply(now, looks, none)).0;
                break;
            }
            let runs = Reply::Rows { revision: 50, rows: vec![plain(member[0].clone(), 40)] };
            let actions = node.reply(now, looks, runs);
            assert!(matches!(actions[..], [Action::Wake(_), Action::Own(News::Waits(_))]));
            now = Moment(now.0 + 4 * S);
            token = asked(&node.tick(now)).0;
        }
        let (_, request) = asked(&node.reply(now, token, Reply::Granted(7)));
        let Request::Commit(join) = request else { panic!("{request:?}") };
        let absent = Guard::Unchanged { key: member[0].clone(), modified: 0 };
        assert!(join.guards.contains(&absent));
    }
}

#[test]
fn who_goes_on_with_a_lease_is_fenced_by_the_time_for_which_it_was_granted() {
    let long = TTL * 4;
    for (told, granted) in [(long, TTL), (TTL, long)] {
        let mut node = Membership::new(&Keys::new("c"), identity("b1"), told, Rules::ALL);
        let now = Moment(100 * S);
        let (token, _) = asked(&node.start(now));
        let rows = vec![entry(3, State::Serving, "b1")];
        let (token, _) = asked(&node.reply(now, token, Reply::Rows { revision: 50, rows }));
        let (token, _) = asked(&node.reply(now, token, Reply::Renewed(Some(granted))));
        let done = Reply::Committed { done: true, revision: 51, rows: Vec::new() };
        node.reply(now, token, done);
        let silent = now + granted * 3 / 4;
        assert_eq!(node.serves(Moment(silent.0 - 1)), Some(3));
        assert_eq!(node.serves(silent), None, "told {told:?}, granted {granted:?}");
        // It is renewed in time, too, and asked for again in time where no answer comes.
        let (first, _) = asked(&node.tick(now + granted / 3));
        let (again, request) = asked(&node.tick(now + granted / 2));
        assert_eq!(request, Request::Renew { lease: 3 });
        assert_ne!(first, again);
    }
}

#[test]
fn a_node_that_leaves_does_not_join_again_and_is_gone_only_when_its_row_says_so() {
    let at = |seconds: u64| Moment((100 + seconds) * S);
    let done = || Reply::Committed { done: true, revision: 60, rows: Vec::new() };
    // A row that was being written before is not the one that says that it is away.
    let (mut node, _) = joined(Vec::new());
    let (entered, _) = asked(&node.all_entered(at(1)));
    let (leaves, _) = asked(&node.leave(at(1), 0));
    assert!(node.reply(at(2), entered, done()).is_empty() && !node.is_idle());
    assert!(node.reply(at(2), leaves, done()).contains(&Action::Own(News::Left)));
    assert!(node.is_idle());
    // Its lease ends while it leaves.
    let (mut node, _) = joined(Vec::new());
    let (renewal, _) = asked(&node.tick(at(5)));
    node.leave(at(6), 0);
    let actions = node.reply(at(7), renewal, Reply::Renewed(None));
    assert_eq!(actions, [Action::Own(News::Left)]);
    assert!(node.is_idle());
}

fn held(path: &str) -> Held {
    let (path, uuid) = (path.to_owned(), format!("u{path}"));
    Held { path, uuid, part: 0, maker: 9, begun: 4, checksum: Some(1) }
}

#[test]
fn names_that_wait_to_be_entered_are_not_forgotten_where_one_answer_is_lost() {
    let keys = Keys::new("c");
    let parts = [held("A"), held("B"), held("C")];
    let mut own = Holdings::new(&keys, "n1", 7, parts, false, Rules::ALL);
    let mut rows: Vec<Row> =
        ["A", "B", "C"].map(|path| name(path, &format!("u{path}"), 3, 10)).into();
    let mut now = Moment(100 * S);
    let mut actions = own.tick(now);
    let (mut entered, mut is_lost) = (Vec::new(), false);
    for step in 0..20 {
        for held in checks(&actions) {
            actions.extend(own.checked(now, &held, Some(true)));
        }
        if actions.contains(&Action::Own(Duty::AllEntered)) {
            break;
        }
        let (token, request) = asked(&actions);
        now = Moment(now.0 + S / 100);
        let reply = match request {
            Request::Get { .. } => Reply::Rows { revision: 50, rows: rows.clone() },
            // The first answer is lost.
            Request::Commit(_) if !std::mem::replace(&mut is_lost, true) => {
                now = Moment(now.0 + 3 * S);
                actions = own.tick(now);
                continue;
            }
            Request::Commit(enter) => {
                let Change::Put { key, value, .. } = &enter.changes[0] else { panic!() };
                let row = rows.iter_mut().find(|row| row.key == *key).unwrap();
                (row.value, row.modified) = (value.clone(), 60 + step);
                entered.push(key.clone());
                Reply::Committed { done: true, revision: 60 + step, rows: Vec::new() }
            }
            other => panic!("{other:?}"),
        };
        actions = own.reply(now, token, reply);
    }
    assert!(actions.contains(&Action::Own(Duty::AllEntered)), "{actions:?}");
    assert_eq!(entered.len(), 3, "{entered:?}");
}

/// A look of a holder at the name of the one part that it has; what it does.
fn looks(own: &mut Holdings, now: Moment, rows: &[Row]) -> Vec<Action<Duty>> {
    let (token, _) = asked(&own.tick(now));
    own.reply(now, token, Reply::Rows { revision: 50, rows: rows.to_vec() })
}

fn ended(maker: u64, below: u64) -> Row {
    let value = below.to_string().into_bytes();
    Row { key: Keys::new("c").maker(maker), value, modified: 40 }
}

#[test]
fn a_part_that_was_never_seen_named_goes_once_its_maker_has_done_with_it() {
    let kept = Duration::from_secs(60);
    let held = Held {
        path: "A".to_owned(),
        uuid: "u".to_owned(),
        part: 0,
        maker: 9,
        begun: 20,
        checksum: Some(1),
    };
    let at = |seconds: u64| Moment((100 + seconds) * S);
    let free = Action::Own(Duty::Free(held.clone()));
    let new = || {
        let parts = [held.clone()];
        Holdings::new(&Keys::new("c"), "n1", 7, parts, true, Rules::ALL).keeping(kept)
    };
    // As long as its maker may publish it, it stays: all below 20 have ended.
    for other in [None, Some(name("A", "x", 3, 10))] {
        let mut own = new();
        for step in 0..5 {
            let mut rows = vec![ended(9, 20)];
            rows.extend(other.clone());
            assert!(!looks(&mut own, at(step * 40), &rows).contains(&free));
        }
        // Then it is kept for readers, and goes.
        let mut rows = vec![ended(9, 21)];
        rows.extend(other);
        assert!(!looks(&mut own, at(200), &rows).contains(&free));
        assert!(!looks(&mut own, at(240), &rows).contains(&free));
        assert!(looks(&mut own, at(270), &rows).contains(&free));
    }
    // What is named stays, whatever its maker says; and if the maker is no more, it goes at once.
    let mut own = new();
    for step in 0..5 {
        let rows = [ended(9, 21), name("A", "u", 7, 10)];
        assert!(!looks(&mut own, at(step * 40), &rows).contains(&free));
    }
    assert!(looks(&mut new(), at(0), &[]).contains(&free));
}

#[test]
fn a_maker_says_in_its_row_what_has_ended_and_no_more() {
    let keys = Keys::new("c");
    let mut maker = Maker::new(&keys, TTL);
    let now = Moment(100 * S);
    let (token, _) = asked(&maker.start(now));
    let (token, _) = asked(&maker.reply(now, token, &Reply::Granted(9)));
    let done = Reply::Committed { done: true, revision: 51, rows: Vec::new() };
    maker.reply(now, token, &done);
    let renew = |maker: &mut Maker, at: u64| {
        let (token, request) = asked(&maker.tick(Moment(at * S)));
        assert_eq!(request, Request::Renew { lease: 9 });
        maker.reply(Moment(at * S), token, &Reply::Renewed(Some(TTL)))
    };
    let is_asked = |actions: &[Action<_>]| actions.iter().any(|a| matches!(a, Action::Ask { .. }));
    assert!(!is_asked(&renew(&mut maker, 105)));
    maker.has_ended_below(70);
    maker.has_ended_below(60);
    let (token, request) = asked(&renew(&mut maker, 110));
    let Request::Commit(says) = request else { panic!("{request:?}") };
    let (key, value) = (keys.maker(9), b"70".to_vec());
    assert_eq!(says.changes, [Change::Put { key: key.clone(), value, lease: Some(9) }]);
    // One that comes late, after a later one, changes nothing.
    assert_eq!(says.guards, [Guard::Unchanged { key: key.clone(), modified: 51 }]);
    assert_eq!(ended_in(&ended(9, 70)), 70);
    assert_eq!(ended_in(&plain(key, 4)), 0);
    // An answer that is lost is asked for again, and what was said is not.
    maker.reply(Moment(110 * S), token, &Reply::Unreachable);
    let (token, _) = asked(&renew(&mut maker, 115));
    maker.reply(Moment(115 * S), token, &done);
    assert!(!is_asked(&renew(&mut maker, 120)));
}

#[test]
fn a_part_that_is_sealed_is_entered_by_the_uuid_that_it_was_made_with() {
    let keys = Keys::new("c");
    let held = |checksum| Held {
        path: "A".to_owned(),
        uuid: "u".to_owned(),
        part: 0,
        maker: 9,
        begun: 4,
        checksum,
    };
    let row = |uuid: &str, made: Option<&str>, checksum: Option<u64>| {
        let mut manifest = manifest(uuid, 3);
        let Content::Array(boxes) = &mut manifest.content else { panic!() };
        boxes.made = made.map(str::to_owned);
        (boxes.parts[0].checksum, boxes.sealed) = (checksum, checksum.is_some());
        Row { key: keys.name("A"), value: manifest.encode(), modified: 10 }
    };
    let enters = |held: Held, row: &Row| {
        let mut own = Holdings::new(&keys, "n1", 7, [held], false, Rules::ALL);
        let now = Moment(100 * S);
        let mut actions = looks(&mut own, now, std::slice::from_ref(row));
        for held in checks(&actions) {
            let (token, _) = asked(&own.checked(now, &held, Some(true)));
            let told = Reply::Rows { revision: 50, rows: vec![row.clone()] };
            actions.extend(own.reply(now, token, told));
        }
        actions.iter().any(|a| matches!(a, Action::Ask { request: Request::Commit(_), .. }))
    };
    let (open, sealed) = (row("u", None, None), row("v", Some("u"), Some(1)));
    assert!(enters(held(None), &open));
    assert!(enters(held(Some(1)), &sealed));
    // It was summed up, and its publication has not taken effect.
    assert!(enters(held(Some(1)), &open));
    // What is not what was sealed counts for nothing.
    assert!(!enters(held(Some(2)), &sealed));
    assert!(!enters(held(None), &sealed));
    assert!(!enters(held(Some(1)), &row("v", None, Some(1))));
}

/// A read of a part that nodes n1, n2 and n3 have, as members 3, 4 and 5, and its first fetch.
fn read_of_three(checksum: Option<u64>) -> (Read, Fetch) {
    let keys = Keys::new("c");
    let mut three = manifest("u", 3);
    three.holders.push(Holder { node: "n2".to_owned(), member: 4 });
    three.holders.push(Holder { node: "n3".to_owned(), member: 5 });
    let Content::Array(boxes) = &mut three.content else { panic!() };
    boxes.parts[0].holders = vec![0, 1, 2];
    boxes.parts[0].checksum = checksum;
    let rows: Vec<Row> = [("n1", 3), ("n2", 4), ("n3", 5)]
        .map(|(node, member)| {
            let mut identity = identity("b1");
            (identity.node, identity.address) = (node.to_owned(), format!("{node}:1"));
            let state = State::Serving;
            let entry = Entry { member, state, since: 0, entered: true, identity };
            let value = serde_json::to_vec(&entry).unwrap();
            Row { key: keys.node(node), value, modified: 40 }
        })
        .into();
    let map = Map::of(&keys, &rows).unwrap();
    let (now, until) = (Moment(100 * S), Moment(200 * S));
    let mut read = Read::new(&keys, "A", Wanted::All, None, map, until, Rules::ALL);
    let fetch = found(&mut read, now, &three);
    (read, fetch.expect("a fetch"))
}

/// The name is looked up, and is this; the fetch that follows.
fn found(read: &mut Read, now: Moment, manifest: &Manifest) -> Option<Fetch> {
    let actions = read.start(now);
    let (token, _) = asked(&actions);
    let row = Row { key: Keys::new("c").name("A"), value: manifest.encode(), modified: 9 };
    fetch_in(&read.reply(now, token, Reply::Rows { revision: 50, rows: vec![row] }))
}

fn fetch_in(actions: &[Action<Step>]) -> Option<Fetch> {
    let fetch = |action: &Action<Step>| match action {
        Action::Own(Step::Fetch(fetch)) => Some(fetch.clone()),
        _ => None,
    };
    actions.iter().find_map(fetch)
}

#[test]
fn a_holder_without_the_part_is_passed_over_and_missing_is_what_none_has() {
    let now = Moment(100 * S);
    let (mut read, first) = read_of_three(Some(1));
    let second = fetch_in(&read.fetched(now, first.attempt, Fetched::NotThere)).unwrap();
    assert_ne!(second.node, first.node);
    let actions = read.fetched(now, second.attempt, Fetched::Whole);
    assert!(matches!(actions[0], Action::Own(Step::Done { .. })), "{actions:?}");
    // None of them has it: the name is looked up again, and is the same.
    let (mut read, mut fetch) = read_of_three(Some(1));
    let manifest = read.manifest().unwrap().clone();
    for round in 0..2 {
        for _ in 0..2 {
            fetch = fetch_in(&read.fetched(now, fetch.attempt, Fetched::NotThere)).unwrap();
        }
        let actions = read.fetched(now, fetch.attempt, Fetched::NotThere);
        if round == 1 {
            assert_eq!(actions, [Action::Own(Step::Failed(Failure::Missing(0)))]);
            break;
        }
        assert!(matches!(asked(&actions).1, Request::Get { .. }));
        let row = Row { key: Keys::new("c").name("A"), value: manifest.encode(), modified: 9 };
        let reply = Reply::Rows { revision: 50, rows: vec![row] };
        fetch = fetch_in(&read.reply(now, asked(&actions).0, reply)).unwrap();
    }
}

#[test]
fn a_holder_that_gives_other_bytes_is_asked_once_more() {
    let now = Moment(100 * S);
    let (mut read, mut fetch) = read_of_three(Some(1));
    let mut nodes = vec![fetch.node.clone()];
    let end = loop {
        let actions = read.fetched(now, fetch.attempt, Fetched::Differs);
        let Some(next) = fetch_in(&actions) else { break actions };
        assert!(!actions.iter().any(|a| matches!(a, Action::Own(Step::Suspect { .. }))));
        nodes.push(next.node.clone());
        fetch = next;
    };
    assert_eq!(nodes.len(), 6, "{nodes:?}");
    assert!(nodes.chunks(2).all(|pair| pair[0] == pair[1]), "{nodes:?}");
    assert_eq!(end, [Action::Own(Step::Failed(Failure::Differs(0)))]);
}

#[test]
fn a_late_reply_to_a_former_member_is_none_to_the_one_that_follows() {
    let keys = Keys::new("c");
    let now = Moment(100 * S);
    let asks = |member| {
        let mut own = Holdings::new(&keys, "n1", member, [held("A")], false, Rules::ALL);
        let (token, _) = asked(&own.tick(now));
        (own, token)
    };
    let (_, former) = asks(7);
    let (mut own, token) = asks(8);
    // It asked for other names: nothing of A stands in it.
    let late = Reply::Rows { revision: 50, rows: Vec::new() };
    assert_eq!(own.reply(now, former, late), []);
    let rows = vec![name("A", "uA", 3, 10)];
    let actions = own.reply(now, token, Reply::Rows { revision: 50, rows });
    assert_eq!(checks(&actions), [held("A")]);
}

fn checks(actions: &[Action<Duty>]) -> Vec<Held> {
    let check = |action: &Action<Duty>| match action {
        Action::Own(Duty::Check(held)) => Some(held.clone()),
        _ => None,
    };
    actions.iter().filter_map(check).collect()
}

#[test]
fn a_sealed_part_counts_again_when_its_bytes_were_looked_at_and_a_damaged_one_never() {
    let keys = Keys::new("c");
    let rows = || vec![name("A", "uA", 3, 10), name("B", "uB", 3, 11), name("C", "uC", 3, 12)];
    let told = || Reply::Rows { revision: 50, rows: rows() };
    let mut own =
        Holdings::new(&keys, "n1", 7, [held("A"), held("B"), held("C")], false, Rules::ALL);
    let at = |seconds: u64| Moment((100 + seconds) * S);
    let (token, _) = asked(&own.tick(at(0)));
    let actions = own.reply(at(0), token, told());
    assert_eq!(checks(&actions), [held("A"), held("B"), held("C")]);
    let is_entered = |actions: &[Action<Duty>]| actions.contains(&Action::Own(Duty::AllEntered));
    assert!(!is_entered(&actions), "nothing is known of any part yet");
    // The damaged one is left as it is; the others are not looked at yet.
    let actions = own.checked(at(1), &held("A"), Some(false));
    assert!(matches!(actions[..], [Action::Wake(_)]), "{actions:?}");
    let (token, _) = asked(&own.checked(at(2), &held("B"), Some(true)));
    let (token, request) = asked(&own.reply(at(2), token, told()));
    let Request::Commit(enter) = request else { panic!("{request:?}") };
    assert!(matches!(&enter.changes[..], [Change::Put { key, .. }] if *key == keys.name("B")));
    let done = Reply::Committed { done: true, revision: 60, rows: Vec::new() };
    assert!(!is_entered(&own.reply(at(2), token, done)));
    // What could not be looked at is at the next look at all names.
    let actions = own.checked(at(3), &held("C"), None);
    assert!(matches!(actions[..], [Action::Wake(_)]), "{actions:?}");
    let (token, _) = asked(&own.tick(at(31)));
    assert_eq!(checks(&own.reply(at(31), token, told())), [held("C")]);
}

/// The row of node n1 as member 3, at an address.
fn row_at(address: &str, modified: u64) -> Row {
    let mut own = identity("b1");
    address.clone_into(&mut own.address);
    let entry = Entry { member: 3, state: State::Serving, since: 0, entered: true, identity: own };
    let value = serde_json::to_vec(&entry).unwrap();
    Row { key: Keys::new("c").node("n1"), value, modified }
}

#[test]
fn a_reader_goes_on_where_the_member_answers_now() {
    let keys = Keys::new("c");
    let (now, until) = (Moment(100 * S), Moment(200 * S));
    let old = Map::of(&keys, &[row_at("h1:1", 40)]).unwrap();
    let mut read = Read::new(&keys, "A", Wanted::All, None, old, until, Rules::ALL);
    let fetch = found(&mut read, now, &manifest("u", 3)).expect("a fetch");
    assert_eq!(fetch.address, "h1:1");
    let (token, request) = asked(&read.fetched(now, fetch.attempt, Fetched::Failed));
    assert_eq!(request, Request::List { prefix: keys.map() });
    let told = Reply::Rows { revision: 52, rows: vec![row_at("h1:2", 52)] };
    let fetch = fetch_in(&read.reply(now, token, told)).expect("another fetch");
    assert_eq!(fetch.address, "h1:2");
    // And nowhere twice.
    let actions = read.fetched(now, fetch.attempt, Fetched::Failed);
    assert!(fetch_in(&actions).is_none(), "{actions:?}");
}

/// Node n1 as member 3, going on from the row that is there.
fn goes_on(address: &str, now: Moment, there: Row, modified: u64) -> Membership {
    let mut own = identity("b1");
    address.clone_into(&mut own.address);
    let mut node = Membership::new(&Keys::new("c"), own, TTL, Rules::ALL);
    let (token, _) = asked(&node.start(now));
    let told = Reply::Rows { revision: 50, rows: vec![there] };
    let (token, request) = asked(&node.reply(now, token, told));
    assert_eq!(request, Request::Renew { lease: 3 });
    let (token, _) = asked(&node.reply(now, token, Reply::Renewed(Some(TTL))));
    node.reply(now, token, Reply::Committed { done: true, revision: modified, rows: Vec::new() });
    node
}

#[test]
fn a_machine_that_was_copied_while_it_ran_does_not_serve_beside_its_copy() {
    let now = Moment(100 * S);
    let mut first = goes_on("h1:1", now, row_at("h1:9", 40), 51);
    let copy = goes_on("h1:2", now, row_at("h1:1", 51), 52);
    let map = |address, modified| Map::of(&Keys::new("c"), &[row_at(address, modified)]).unwrap();
    // What was read before its own row was written says nothing.
    first.map_seen(now, &map("h1:9", 40));
    assert_eq!((first.serves(now), copy.serves(now)), (Some(3), Some(3)));
    first.map_seen(now, &map("h1:2", 52));
    assert_eq!((first.serves(now), copy.serves(now)), (None, Some(3)));
}
