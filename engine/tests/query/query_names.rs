//! Names and parts of names, in segments of many names: what is found is what every record says.

use crate::common::Fixture;
use engram::query::parse;
use engram::{NewObject, Placement, QueryOptions, Realm};

/// Names of three kinds: numbered, in no order, and of characters of several bytes.
fn names(count: u32) -> Vec<String> {
    let scrambled = |at: u32| at.wrapping_mul(0x9E37_79B1);
    let word = |at: u32| ["ß", "日本", "é", "a", "\u{10ffff}"][at as usize % 5];
    let names = (0..count).map(|at| match at % 3 {
        0 => format!("n{at:012x}"),
        1 => format!("{:08x}_{}", scrambled(at), at % 7),
        _ => {
            let at = scrambled(at) >> 3;
            format!("{}{}{} {}", word(at), word(at / 5), word(at / 25), at % 900)
        }
    });
    names.collect()
}

fn fill(realm: &Realm, names: &[String]) {
    for names in names.chunks(1000) {
        let batch = realm.batch().unwrap();
        for (at, name) in names.iter().enumerate() {
            let path = format!("{}/{name}", ["g", "h", "g/deep"][at % 3]);
            let over = Placement { overwrite: true, ..Placement::default() };
            realm.put(realm.root(), &path, &NewObject::blob(), b"", over).unwrap();
        }
        batch.commit().unwrap();
    }
}

/// Parts of a name, and texts that are hardly a part of any.
fn parts(name: &str) -> Vec<String> {
    let chars: Vec<char> = name.chars().collect();
    let part = |from: usize, len: usize| {
        let from = from.min(chars.len());
        chars[from..(from + len).min(chars.len())].iter().collect::<String>()
    };
    let mut parts = vec![String::new(), "zzz".to_owned(), format!("{name}a")];
    for (from, len) in [(0, 1), (1, 2), (0, 3), (2, 3), (3, 4), (1, 6), (2, 30)] {
        parts.push(part(from, len));
    }
    parts
}

fn check(realm: &Realm, text: &str) {
    let query = parse(text).unwrap();
    let brute_force = QueryOptions { brute_force: true, ..QueryOptions::default() };
    let expected = realm.query(&query, &brute_force).unwrap();
    let found = realm.query(&query, &QueryOptions::default()).unwrap();
    assert_eq!(found.oids, expected.oids, "{text}");
}

fn check_all(realm: &Realm, names: &[String]) {
    for name in names.iter().step_by(names.len() / 9) {
        check(realm, &format!("@name = \"{name}\" and not @name = \"n\""));
        check(realm, &format!("@path = \"g/{name}\" or @path = \"h/{name}\""));
        check(realm, &format!("@name in (\"{name}\", \"{}\", 5)", names[1]));
        for part in parts(name) {
            for test in ["=", "!=", "<", ">=", "contains", "startswith", "endswith"] {
                check(realm, &format!("@name {test} \"{part}\""));
            }
            check(realm, &format!("@name like \"%{part}%\" or @name like \"_{part}%\""));
            check(realm, &format!("@name like \"{part}%{part}\""));
            check(realm, &format!("@name between \"{part}\" and \"{name}\""));
            check(realm, &format!("@path contains \"deep/{part}\" or @path endswith \"{part}\""));
        }
    }
}

#[test]
fn names_are_found_as_a_look_at_each_finds_them() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    let names = names(5000);
    fill(&realm, &names);
    realm.maintain().unwrap();
    assert!(realm.index_stats().unwrap().segments > 1);
    check_all(&realm, &names);
    // Some are gone, and some have other names, or are there again.
    for (at, name) in names.iter().enumerate().step_by(7) {
        let path = format!("{}/{name}", ["g", "h", "g/deep"][at % 1000 % 3]);
        let _ = realm.delete(realm.root(), &path);
    }
    for (at, name) in names.iter().enumerate().skip(1).step_by(11) {
        let path = format!("{}/{name}", ["g", "h", "g/deep"][at % 1000 % 3]);
        let _ = realm.rename(realm.root(), &path, realm.root(), &format!("h/{name}-{at}"));
    }
    check_all(&realm, &names[..names.len() / 3]);
    realm.maintain().unwrap();
    check_all(&realm, &names[names.len() / 2..]);
}

#[test]
fn one_name_is_looked_up_in_few_groups_and_sought_in_many() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    let small = engram::IndexSettings { segment_rows: Some(64), ..Default::default() };
    realm.set_index_settings(realm.root(), &small).unwrap();
    let names = names(2000);
    fill(&realm, &names);
    realm.maintain().unwrap();
    let text = format!("@name = \"{}\"", names[777]);
    let how = |realm: &Realm| {
        check(realm, &text);
        let explained = realm.explain(&parse(&text).unwrap(), &QueryOptions::default()).unwrap();
        explained.leaves[0].how.clone()
    };
    assert!(how(&realm).starts_with("the names of each group"), "{}", how(&realm));
    for group in 0..100 {
        realm.create_group(realm.root(), &format!("more/{group}"), &[], &[], true).unwrap();
    }
    assert!(how(&realm).starts_with("the column of names"), "{}", how(&realm));
}
