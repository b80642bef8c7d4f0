//! A query as text: the text is parsed to an equal tree.
//!
//! `And` and `Or` of one are that one; of none they are `true` and `not true`.

use std::fmt::{self, Display, Formatter, Write};
use std::ops::Range;

use super::words::is_bare;
use crate::ast::{
    Builtin, Comparison, Direction, Expr, Measure, Order, Query, QueryField, Test, Totals,
};
use engram_columns::literal::write_text;

/// How tightly what stands around an expression binds.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Precedence {
    Nothing,
    Or,
    And,
    Not,
}

impl Display for Query {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(totals) = &self.totals {
            parts.push(listed(&totals.measures));
        }
        if self.expr != Expr::All {
            let is_first = parts.is_empty();
            parts.push(format!("{}{}", if is_first { "" } else { "where " }, self.expr));
        }
        if let Some(totals) = &self.totals {
            if !totals.by.is_empty() {
                parts.push(format!("group by {}", listed(&totals.by)));
            }
            if !totals.order.is_empty() {
                let order = totals.order.iter().map(|(column, direction)| {
                    let desc = if *direction == Direction::Descending { " desc" } else { "" };
                    format!("{}{desc}", totals.name(*column))
                });
                parts.push(format!("order by {}", listed(&order.collect::<Vec<_>>())));
            }
        }
        if !self.order_by.is_empty() {
            parts.push(format!("order by {}", listed(&self.order_by)));
        }
        parts.extend(self.limit.map(|limit| format!("limit {limit}")));
        if self.offset > 0 {
            parts.push(format!("offset {}", self.offset));
        }
        f.write_str(&parts.join(" "))
    }
}

fn listed(items: &[impl Display]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl Totals {
    /// What a column is: of the fields of groups, then of the measures.
    pub(crate) fn name(&self, column: usize) -> String {
        match self.by.get(column) {
            Some(field) => field.to_string(),
            None => self.measures[column - self.by.len()].to_string(),
        }
    }
}

impl Display for Measure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.field {
            Some(field) => write!(f, "{}({field})", self.function.name()),
            None => write!(f, "{}()", self.function.name()),
        }
    }
}

/// A query with totals as text, and where in it the fields of groups and the measures stand.
pub(crate) fn totals_spots(query: &Query) -> (String, Vec<Range<usize>>) {
    let text = query.to_string();
    let Some(totals) = &query.totals else { return (text, Vec::new()) };
    let before =
        Query { totals: Some(Totals { by: Vec::new(), ..totals.clone() }), ..query.clone() };
    let order_less = |query: &Query| {
        let totals = query.totals.clone().map(|totals| Totals { order: Vec::new(), ..totals });
        Query { totals, limit: None, offset: 0, ..query.clone() }.to_string()
    };
    let mut spots = Vec::new();
    let mut at = order_less(&before).len() + " group by ".len();
    for field in &totals.by {
        let len = field.to_string().len();
        spots.push(at..at + len);
        at += len + ", ".len();
    }
    at = 0;
    for measure in &totals.measures {
        let len = measure.to_string().len();
        spots.push(at..at + len);
        at += len + ", ".len();
    }
    (text, spots)
}

impl Display for Order {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.field, if self.descending { " desc" } else { "" })
    }
}

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_expr(self, Precedence::Nothing, f)
    }
}

fn write_expr(expr: &Expr, around: Precedence, f: &mut Formatter<'_>) -> fmt::Result {
    match expr {
        Expr::All => f.write_str("true"),
        Expr::And(terms) => write_terms(terms, " and ", Precedence::And, "true", around, f),
        Expr::Or(terms) => write_terms(terms, " or ", Precedence::Or, "not true", around, f),
        Expr::Not(term) => {
            f.write_str("not ")?;
            write_expr(term, Precedence::Not, f)
        }
        Expr::Test(field, Test::Exists) => write!(f, "exists({field})"),
        Expr::Test(field, test) => write!(f, "{field} {test}"),
        Expr::Under(path) => {
            f.write_str("under(")?;
            write_text(path, f)?;
            f.write_char(')')
        }
    }
}

/// Parentheses stand wherever leaving them out would make another tree, an equivalent one too.
fn write_terms(
    terms: &[Expr],
    joint: &str,
    own: Precedence,
    none: &str,
    around: Precedence,
    f: &mut Formatter<'_>,
) -> fmt::Result {
    match terms {
        [] => return f.write_str(none),
        [only] => return write_expr(only, around, f),
        _ => {}
    }
    let apart = around >= own;
    f.write_str(if apart { "(" } else { "" })?;
    for (place, term) in terms.iter().enumerate() {
        f.write_str(if place == 0 { "" } else { joint })?;
        write_expr(term, own, f)?;
    }
    f.write_str(if apart { ")" } else { "" })
}

fn write_parts(parts: &[String], f: &mut Formatter<'_>) -> fmt::Result {
    parts.iter().try_for_each(|part| {
        f.write_char('.')?;
        write_key(part, f)
    })
}

impl Display for QueryField {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            QueryField::Attr(key) => write_key(key, f),
            QueryField::Part(key, parts) => {
                // Without quotes it would be the attribute of a group.
                if key == "group" {
                    f.write_str("`group`")?;
                } else {
                    write_key(key, f)?;
                }
                write_parts(parts, f)
            }
            QueryField::GroupAttr(key) => {
                f.write_str("group.")?;
                write_key(key, f)
            }
            QueryField::GroupPart(key, parts) => {
                f.write_str("group.")?;
                write_key(key, f)?;
                write_parts(parts, f)
            }
            QueryField::Builtin(builtin) => write!(f, "@{}", builtin.name()),
        }
    }
}

impl Builtin {
    /// Its name in a query, without the `@`.
    pub fn name(self) -> &'static str {
        Builtin::ALL.iter().find(|(builtin, _)| *builtin == self).map_or("", |(_, name)| name)
    }
}

impl Display for Test {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Test::Compare(comparison, value) => write!(f, "{comparison} {value}"),
            Test::Between(low, high) => write!(f, "between {low} and {high}"),
            Test::In(values) => {
                f.write_str("in (")?;
                for (place, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if place == 0 { "" } else { ", " })?;
                }
                f.write_char(')')
            }
            Test::Contains(value) => write!(f, "contains {value}"),
            Test::StartsWith(text) => write_named("startswith ", text, f),
            Test::EndsWith(text) => write_named("endswith ", text, f),
            Test::Like(text) => write_named("like ", text, f),
            Test::Exists => f.write_str("exists"),
        }
    }
}

impl Display for Comparison {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Comparison::Eq => "=",
            Comparison::Ne => "!=",
            Comparison::Lt => "<",
            Comparison::Le => "<=",
            Comparison::Gt => ">",
            Comparison::Ge => ">=",
        })
    }
}

fn write_named(name: &str, text: &str, f: &mut Formatter<'_>) -> fmt::Result {
    f.write_str(name)?;
    write_text(text, f)
}

fn write_key(key: &str, f: &mut Formatter<'_>) -> fmt::Result {
    if is_bare(key) { f.write_str(key) } else { write!(f, "`{}`", key.replace('`', "``")) }
}
