//! A query made ready: keys as their numbers, literals as cells, paths as groups.
//!
//! A name that nobody has ever used as a key is on no object, so a test of it is false here
//! already, and so is `under` of a group that there is none of. Tests of the group that holds an
//! object (its path, an attribute of it or above it, what it lies under) are about groups alone:
//! `groups.rs` judges each group once.

use super::answer::QueryOptions;
use super::groups::Groups;
use super::predicate::Predicate;
use super::totals::TotalsPlan;
use crate::ast::{Builtin, Comparison, Expr, Query, QueryField, Test};
use engram_base::error::Result;
use engram_base::fail;
use engram_base::id::Gid;
use engram_columns::cell::Cell;
use engram_columns::literal::Literal;
use engram_records::attrs::KeyId;
use std::sync::Arc;

/// A condition.
#[derive(Clone, Debug)]
pub enum Condition {
    /// Of every object, or of none.
    Const(bool),
    /// All of these.
    All(Vec<Condition>),
    /// Any of these.
    Any(Vec<Condition>),
    /// Not this.
    Not(Box<Condition>),
    /// One test.
    Leaf(Leaf),
}

/// One test of one field.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// Its number in the query.
    pub number: usize,
    /// What is tested.
    pub about: About,
    /// How.
    pub predicate: Predicate,
}

/// What is tested, or ordered by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    /// The object's own attribute.
    Attr(KeyId),
    /// A field of the object's own attribute, whose dtype is a structure.
    Part(KeyId, Vec<String>),
    /// The path of the object, and what the test says of its group and its name.
    Path(Box<Parts>),
    /// The name of the object.
    Name,
    /// A built-in field with a cell of its own in the record.
    Builtin(Builtin),
    /// The group that holds it.
    Group(GroupField),
}

/// What a group is tested for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupField {
    /// Its path.
    Path,
    /// The attribute of this key, its own or of the nearest group above that has it; or a field of
    /// that, a field of the field, and so on.
    Attr(KeyId, Vec<String>),
    /// Whether it is this group, or lies below it.
    Under(Gid),
    /// Whether it is the root.
    Root,
}

/// A test of the path, said of the group's path and the name; `None` where that cannot be said.
#[derive(Clone, Debug)]
pub struct Parts(pub Option<Condition>);

impl PartialEq for Parts {
    fn eq(&self, _: &Self) -> bool {
        false
    }
}

impl Eq for Parts {}

/// One key of the order.
#[derive(Clone, Debug)]
pub struct OrderKey {
    /// By what; `None` is a key that no object has.
    pub about: Option<About>,
    /// From the greatest.
    pub descending: bool,
}

/// A query made ready.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Which objects.
    pub node: Condition,
    /// The same, said so that columns can answer it.
    pub search: Condition,
    /// In which order.
    pub order: Vec<OrderKey>,
    /// How many at most, from the first of all on.
    pub limit: Option<usize>,
    /// How many of these are left out, from the first on.
    pub offset: usize,
    /// What is worked out of the objects, instead of listing them.
    pub totals: Option<Arc<TotalsPlan>>,
    /// How many leaves there are.
    pub leaves: usize,
    /// The leaves as a query says them, by number, where somebody wants to know.
    pub texts: Vec<String>,
}

impl Plan {
    /// The plan of a query that says nothing.
    pub fn everything() -> Self {
        let (node, search) = (Condition::Const(true), Condition::Const(true));
        let (order, texts) = (Vec::new(), Vec::new());
        let (limit, totals) = (None, None);
        Plan { node, search, order, limit, offset: 0, totals, leaves: 0, texts }
    }

    /// What to say to who asks a query for objects that gives figures, or the other way round.
    pub(crate) fn other_way(&self) -> &'static str {
        match self.totals {
            Some(_) => {
                "this query gives figures, such as count(), and no objects: ask it by aggregate(), \
                 or leave the figures out"
            }
            None => {
                "this query finds objects and gives no figures: begin it with some, as in \
                 count(), mean(temperature) where orbit = 4, or ask it by query()"
            }
        }
    }

    /// The attributes that the condition names.
    pub fn keys(&self) -> Vec<KeyId> {
        let mut leaves = Vec::new();
        leaves_of(&self.node, &mut leaves);
        let keys = leaves.iter().filter_map(|leaf| match leaf.about {
            About::Attr(key) => Some(key),
            _ => None,
        });
        keys.collect()
    }
}

/// The leaves of a condition.
pub(crate) fn leaves_of<'p>(node: &'p Condition, leaves: &mut Vec<&'p Leaf>) {
    match node {
        Condition::Const(_) => {}
        Condition::Not(inner) => leaves_of(inner, leaves),
        Condition::All(parts) | Condition::Any(parts) => {
            for part in parts {
                leaves_of(part, leaves);
            }
        }
        Condition::Leaf(leaf) => leaves.push(leaf),
    }
}

/// Makes a query ready.
pub fn compile(
    query: &Query,
    options: &QueryOptions,
    groups: &mut Groups<'_>,
    key_id: &mut dyn FnMut(&str) -> Result<Option<KeyId>>,
    tell: bool,
) -> Result<Plan> {
    let namespace = groups.root();
    let from = options.root.unwrap_or(namespace);
    groups.require(from)?;
    let texts = Vec::new();
    let mut compiler = Compiler { groups, key_id, from, leaves: 0, tell, texts };
    let mut node = compiler.expr(&query.expr)?;
    if from != namespace {
        let about = About::Group(GroupField::Under(from));
        let below = compiler.leaf(about, Predicate::Exists, || "below the group asked".to_owned());
        node = all(vec![below, node]);
    }
    let mut order = Vec::with_capacity(query.order_by.len());
    for key in &query.order_by {
        let about = compiler.field(&key.field)?;
        order.push(OrderKey { about, descending: key.descending });
    }
    let totals = TotalsPlan::new(query, &mut |field| compiler.field(field))?.map(Arc::new);
    let limit = query.last().filter(|_| totals.is_none());
    let limit = limit.map(|last| usize::try_from(last).unwrap_or(usize::MAX));
    let offset = if totals.is_some() { 0 } else { query.offset };
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    let search = searchable(&node);
    Ok(Plan {
        node,
        search,
        order,
        limit,
        offset,
        totals,
        leaves: compiler.leaves,
        texts: compiler.texts,
    })
}

/// The condition, with tests of the path said of groups and names.
fn searchable(node: &Condition) -> Condition {
    let each = |parts: &[Condition]| parts.iter().map(searchable).collect();
    match node {
        Condition::Const(value) => Condition::Const(*value),
        Condition::Not(inner) => not(searchable(inner)),
        Condition::All(parts) => all(each(parts)),
        Condition::Any(parts) => any(each(parts)),
        Condition::Leaf(Leaf { about: About::Path(parts), .. }) => {
            parts.0.clone().unwrap_or_else(|| node.clone())
        }
        Condition::Leaf(leaf) => Condition::Leaf(leaf.clone()),
    }
}

struct Compiler<'c, 'a> {
    groups: &'c mut Groups<'a>,
    key_id: &'c mut dyn FnMut(&str) -> Result<Option<KeyId>>,
    from: Gid,
    leaves: usize,
    tell: bool,
    texts: Vec<String>,
}

impl Compiler<'_, '_> {
    fn expr(&mut self, expr: &Expr) -> Result<Condition> {
        Ok(match expr {
            Expr::All => Condition::Const(true),
            Expr::And(parts) => all(self.exprs(parts)?),
            Expr::Or(parts) => any(self.exprs(parts)?),
            Expr::Not(inner) => not(self.expr(inner)?),
            Expr::Under(path) => match self.groups.find(self.from, path)? {
                Some(gid) if gid == self.groups.root() => Condition::Const(true),
                Some(gid) => {
                    let about = About::Group(GroupField::Under(gid));
                    self.leaf(about, Predicate::Exists, || expr.to_string())
                }
                None => Condition::Const(false),
            },
            Expr::Test(field, test) => self.test(field, test)?,
        })
    }

    fn exprs(&mut self, parts: &[Expr]) -> Result<Vec<Condition>> {
        parts.iter().map(|part| self.expr(part)).collect()
    }

    fn test(&mut self, field: &QueryField, test: &Test) -> Result<Condition> {
        let predicate = Predicate::new(test);
        let text = || Expr::Test(field.clone(), test.clone()).to_string();
        if let QueryField::Part(..) = field {
            let Some(about) = self.field(field)? else { return Ok(Condition::Const(false)) };
            let About::Part(key, _) = about else { return Ok(Condition::Const(false)) };
            // Columns say who has the attribute, and records the rest.
            let exists = QueryField::Attr(field.to_string());
            let there = || Expr::Test(exists, Test::Exists).to_string();
            let there = self.leaf(About::Attr(key), Predicate::Exists, there);
            return Ok(all(vec![there, self.leaf(about, predicate, text)]));
        }
        if matches!(field, QueryField::Builtin(Builtin::Scope)) {
            return Ok(Condition::Const(
                predicate.cell(&Cell::Text(self.groups.scope().as_str().into())),
            ));
        }
        if matches!(field, QueryField::Builtin(Builtin::Path)) {
            let parts = self.path_parts(test);
            return Ok(self.leaf(About::Path(Box::new(Parts(parts))), predicate, text));
        }
        Ok(match self.field(field)? {
            Some(about) => self.leaf(about, predicate, text),
            None => Condition::Const(false),
        })
    }

    fn field(&mut self, field: &QueryField) -> Result<Option<About>> {
        Ok(match field {
            QueryField::Attr(key) => (self.key_id)(key)?.map(About::Attr),
            QueryField::Part(key, parts) => self.part(field, key, parts)?,
            QueryField::GroupAttr(key) => self.group_attr(key, &[])?,
            QueryField::GroupPart(key, parts) => self.group_attr(key, parts)?,
            QueryField::Builtin(Builtin::Name) => Some(About::Name),
            QueryField::Builtin(Builtin::Group) => Some(About::Group(GroupField::Path)),
            QueryField::Builtin(Builtin::Path) => Some(About::Path(Box::new(Parts(None)))),
            QueryField::Builtin(builtin) => Some(About::Builtin(*builtin)),
        })
    }

    fn group_attr(&mut self, key: &str, parts: &[String]) -> Result<Option<About>> {
        let id = match (self.key_id)(key)? {
            Some(id) => Some(id),
            None => self.groups.unknown_key(key)?,
        };
        Ok(id.map(|id| About::Group(GroupField::Attr(id, parts.to_vec()))))
    }

    /// A field of an attribute whose dtype is a structure.
    fn part(&mut self, field: &QueryField, key: &str, parts: &[String]) -> Result<Option<About>> {
        if let Some(id) = (self.key_id)(key)? {
            return Ok(Some(About::Part(id, parts.to_vec())));
        }
        let part = parts.join(".");
        let whole = format!("{key}.{part}");
        if (self.key_id)(&whole)?.is_some() {
            fail!(
                Query,
                "{field} is the field {part:?} of an attribute {key:?}, which no object has; of an \
                 attribute {whole:?} the name stands in backquotes: `{whole}`"
            );
        }
        Ok(None)
    }

    fn leaf(
        &mut self,
        about: About,
        predicate: Predicate,
        text: impl FnOnce() -> String,
    ) -> Condition {
        let number = self.leaves;
        self.leaves += 1;
        if self.tell {
            self.texts.push(text());
        }
        Condition::Leaf(Leaf { number, about, predicate })
    }

    /// A path is the group's path, a slash unless that is the root, and the name, which has none.
    /// So what a test asks of the path it asks of these two, cut at the text's last slash.
    fn path_parts(&mut self, test: &Test) -> Option<Condition> {
        match test {
            Test::Compare(Comparison::Eq, literal) => Some(self.path_equals(literal)),
            Test::Compare(Comparison::Ne, Literal::Text(text)) => {
                Some(not(self.path_equals(&Literal::Text(text.clone()))))
            }
            Test::In(literals) => {
                Some(any(literals.iter().map(|literal| self.path_equals(literal)).collect()))
            }
            Test::Contains(Literal::Text(part)) => {
                let within = self.group_path(&Test::Contains(Literal::Text(part.clone())));
                Some(match part.rsplit_once('/') {
                    None => {
                        let name = self.name(&Test::Contains(Literal::Text(part.clone())));
                        any(vec![within, name])
                    }
                    Some((above, name)) => {
                        let above = self.group_path(&Test::EndsWith(above.to_owned()));
                        let name = self.name(&Test::StartsWith(name.to_owned()));
                        any(vec![within, all(vec![self.not_root(), above, name])])
                    }
                })
            }
            Test::StartsWith(start) => {
                let within = self.group_path(&Test::StartsWith(start.clone()));
                let (root, not_root) = (self.root(), self.not_root());
                Some(match start.rsplit_once('/') {
                    None => {
                        let name = self.name(&Test::StartsWith(start.clone()));
                        any(vec![all(vec![not_root, within]), all(vec![root, name])])
                    }
                    Some((above, name)) => {
                        let above = self.group_path(&text_equals(above));
                        let name = self.name(&Test::StartsWith(name.to_owned()));
                        all(vec![not_root, any(vec![within, all(vec![above, name])])])
                    }
                })
            }
            Test::EndsWith(end) => Some(match end.rsplit_once('/') {
                None => self.name(&Test::EndsWith(end.clone())),
                Some((above, name)) => {
                    let above = self.group_path(&Test::EndsWith(above.to_owned()));
                    all(vec![self.not_root(), above, self.name(&text_equals(name))])
                }
            }),
            Test::Exists => Some(Condition::Const(true)),
            _ => None,
        }
    }

    fn path_equals(&mut self, literal: &Literal) -> Condition {
        let Literal::Text(text) = literal else { return Condition::Const(false) };
        match text.rsplit_once('/') {
            None => all(vec![self.root(), self.name(&text_equals(text))]),
            Some((above, name)) => {
                let above = self.group_path(&text_equals(above));
                all(vec![self.not_root(), above, self.name(&text_equals(name))])
            }
        }
    }

    fn name(&mut self, test: &Test) -> Condition {
        let text = || Expr::Test(QueryField::Builtin(Builtin::Name), test.clone()).to_string();
        self.leaf(About::Name, Predicate::new(test), text)
    }

    fn group_path(&mut self, test: &Test) -> Condition {
        let text = || Expr::Test(QueryField::Builtin(Builtin::Group), test.clone()).to_string();
        self.leaf(About::Group(GroupField::Path), Predicate::new(test), text)
    }

    fn root(&mut self) -> Condition {
        let about = About::Group(GroupField::Root);
        self.leaf(about, Predicate::Exists, || "in the root itself".to_owned())
    }

    fn not_root(&mut self) -> Condition {
        not(self.root())
    }
}

fn text_equals(text: &str) -> Test {
    Test::Compare(Comparison::Eq, Literal::Text(text.to_owned()))
}

/// All of these, without what is plain.
pub(crate) fn all(parts: Vec<Condition>) -> Condition {
    let mut kept = Vec::with_capacity(parts.len());
    for part in parts {
        match part {
            Condition::Const(true) => {}
            Condition::Const(false) => return Condition::Const(false),
            Condition::All(inner) => kept.extend(inner),
            part => kept.push(part),
        }
    }
    match kept.len() {
        0 => Condition::Const(true),
        1 => kept.remove(0),
        _ => Condition::All(kept),
    }
}

/// Joins conditions of which any has to hold, without those whose outcome is plain.
pub(crate) fn any(parts: Vec<Condition>) -> Condition {
    let mut kept = Vec::with_capacity(parts.len());
    for part in parts {
        match part {
            Condition::Const(false) => {}
            Condition::Const(true) => return Condition::Const(true),
            Condition::Any(inner) => kept.extend(inner),
            part => kept.push(part),
        }
    }
    match kept.len() {
        0 => Condition::Const(false),
        1 => kept.remove(0),
        _ => Condition::Any(kept),
    }
}

/// Negates a condition.
pub(crate) fn not(node: Condition) -> Condition {
    match node {
        Condition::Const(value) => Condition::Const(!value),
        Condition::Not(inner) => *inner,
        node => Condition::Not(Box::new(node)),
    }
}
