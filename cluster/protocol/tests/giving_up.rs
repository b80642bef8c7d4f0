//! A node that is given up for good: what guards that, and what is only there.

use engram_protocol::clock::Moment;
use engram_protocol::coordinator::{Change, Guard, Keys, Reply, Request, Row, Transaction};
use engram_protocol::manifest::{Boxes, Content, Holder, Manifest, Part};
use engram_protocol::map::{Entry, Identity, Map, Standing, State};
use engram_protocol::strike::{Strike, Verdict};
use engram_protocol::{Action, Rules};

const NOW: Moment = Moment(100_000_000_000);

fn keys() -> Keys {
    Keys::new("c")
}

/// The row of node n1.
fn row(member: u64, state: State) -> Row {
    let identity = Identity { node: "n1".to_owned(), ..Identity::default() };
    let entry = Entry { member, state, since: 1, entered: true, identity };
    Row { key: keys().node("n1"), value: serde_json::to_vec(&entry).unwrap(), modified: 40 }
}

fn lease(member: u64) -> Row {
    Row { key: keys().member(member), value: Vec::new(), modified: 39 }
}

fn asked(actions: &[Action<Verdict>]) -> (u64, Request) {
    let [Action::Ask { token, request }, Action::Wake(_)] = actions else { panic!("{actions:?}") };
    (*token, request.clone())
}

/// What is done about node n1 as member 3, where the rows are these.
fn given_up(rows: Vec<Row>) -> (Strike, Vec<Action<Verdict>>) {
    let mut strike = Strike::new(&keys(), "n1", 3, 77, Rules::ALL).for_good();
    let (token, request) = asked(&strike.start(NOW));
    assert_eq!(request, Request::Get { keys: vec![keys().node("n1"), keys().member(3)] });
    let actions = strike.reply(NOW, token, Reply::Rows { revision: 50, rows });
    (strike, actions)
}

#[test]
fn a_node_is_given_up_by_a_transaction_that_compares_that_its_lease_has_ended() {
    for state in [State::Serving, State::Away] {
        let (mut strike, actions) = given_up(vec![row(3, state)]);
        let (token, request) = asked(&actions);
        let Request::Commit(Transaction { guards, changes, .. }) = request else { panic!() };
        assert_eq!(
            guards,
            [
                Guard::Unchanged { key: keys().node("n1"), modified: 40 },
                Guard::Unchanged { key: keys().member(3), modified: 0 },
            ]
        );
        let [Change::Put { value, .. }, Change::Put { key: touched, .. }] = &changes[..] else {
            panic!("{changes:?}")
        };
        assert_eq!(*touched, keys().epoch());
        let entry: Entry = serde_json::from_slice(value).unwrap();
        assert_eq!((entry.state, entry.since, entry.member), (State::Lost, 77, 3));
        // Readers do not wait for it any more.
        let written = Row { value: value.clone(), ..row(3, state) };
        let map = Map::of(&keys(), &[written]).unwrap();
        let holder = Holder { node: "n1".to_owned(), member: 3 };
        assert_eq!(map.standing(&holder, Rules::ALL), Standing::Lost);
        let done = Reply::Committed { done: true, revision: 51, rows: Vec::new() };
        assert_eq!(strike.reply(NOW, token, done), [Action::Own(Verdict::Struck)]);
    }
}

#[test]
fn a_node_that_serves_or_came_back_is_not_given_up() {
    let (_, actions) = given_up(vec![row(3, State::Serving), lease(3)]);
    assert_eq!(actions, [Action::Own(Verdict::Alive)]);
    let (_, actions) = given_up(vec![row(4, State::Serving)]);
    assert_eq!(actions, [Action::Own(Verdict::Alive)]);
    // It came back between the look and the transaction: it is looked at again.
    let (mut strike, actions) = given_up(vec![row(3, State::Away)]);
    let (token, _) = asked(&actions);
    let refused = Reply::Committed { done: false, revision: 51, rows: Vec::new() };
    let (token, _) = asked(&strike.reply(NOW, token, refused));
    let rows = vec![row(4, State::Serving), lease(4)];
    let actions = strike.reply(NOW, token, Reply::Rows { revision: 52, rows });
    assert_eq!(actions, [Action::Own(Verdict::Alive)]);
}

#[test]
fn a_node_that_was_given_up_stays_so() {
    let (_, actions) = given_up(vec![row(3, State::Lost)]);
    assert_eq!(actions, [Action::Own(Verdict::Struck)]);
    let (mut strike, actions) = given_up(vec![row(3, State::Away)]);
    let (token, _) = asked(&actions);
    assert_eq!(strike.reply(NOW, token, Reply::Unreachable), [Action::Own(Verdict::Unknown)]);
}

fn manifest(content: Content) -> Manifest {
    let holder = |node: &str| Holder { node: node.to_owned(), member: 3 };
    Manifest {
        uuid: "u".to_owned(),
        generation: 1,
        holders: vec![holder("n1"), holder("n2")],
        content,
    }
}

fn array(holders: &[&[u32]]) -> Manifest {
    let part = |holders: &&[u32]| Part { holders: holders.to_vec(), ..Part::default() };
    let parts = holders.iter().map(part).collect();
    manifest(Content::Array(Boxes { parts, ..Boxes::default() }))
}

/// The map of nodes n1 and n2, each as this member.
fn map(nodes: [(u64, State); 2]) -> Map {
    let name = |at: usize| format!("n{}", at + 1);
    let written = |(at, (member, state)): (usize, (u64, State))| {
        let entry: Entry = serde_json::from_slice(&row(member, state).value).unwrap();
        let identity = Identity { node: name(at), ..entry.identity };
        let value = serde_json::to_vec(&Entry { identity, ..entry }).unwrap();
        Row { key: keys().node(&name(at)), value, modified: 40 }
    };
    let rows: Vec<Row> = nodes.into_iter().enumerate().map(written).collect();
    Map::of(&keys(), &rows).unwrap()
}

#[test]
fn a_node_is_alone_with_a_part_that_no_other_node_has() {
    let both = map([(3, State::Serving); 2]);
    let is_only_at = |manifest: &Manifest, node: &str| manifest.is_only_at(node, &both);
    let shared = array(&[&[0, 1], &[1, 0]]);
    assert!(!is_only_at(&shared, "n1") && !is_only_at(&shared, "n2"));
    let one = array(&[&[0, 1], &[1]]);
    assert!(!is_only_at(&one, "n1") && is_only_at(&one, "n2"));
    assert!(!is_only_at(&one, "n3"));
    assert!(!is_only_at(&array(&[]), "n1"));
    // What lies below a subtree has one home, however many nodes there are.
    let hash = manifest(Content::Hash { weights: vec![1.0, 1.0] });
    assert!(is_only_at(&hash, "n1") && is_only_at(&hash, "n2") && !is_only_at(&hash, "n3"));
    // A copy counts while its node answers, in the life in which it took the part.
    for other in [(3, State::Away), (3, State::Lost), (4, State::Serving)] {
        let map = map([(3, State::Serving), other]);
        assert!(shared.is_only_at("n1", &map), "{other:?}");
    }
}
