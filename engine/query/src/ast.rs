//! What a query says, as a tree. Nothing here knows a pool.
//!
//! `Display` writes the query language: its output is parsed to an equal tree.

pub use engram_columns::literal::Literal;

/// A whole query.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Query {
    /// Which objects; `All` where nothing is said.
    pub expr: Expr,
    /// In which order; OID order where nothing is said.
    pub order_by: Vec<Order>,
    /// How many at most.
    pub limit: Option<u64>,
    /// How many of the first are left out before.
    pub offset: u64,
    /// What is worked out of the objects, instead of listing them.
    pub totals: Option<Totals>,
}

impl Query {
    /// How many of the first come before what is left out behind them, if anything is.
    pub fn last(&self) -> Option<u64> {
        self.limit.map(|limit| limit.saturating_add(self.offset))
    }
}

/// What is worked out of objects: a row for each group of those that have the same, or one of all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// What is worked out of each group.
    pub measures: Vec<Measure>,
    /// What the objects of a group have the same of.
    pub by: Vec<QueryField>,
    /// By which columns the rows are ordered: the fields of the groups first, then the measures.
    pub order: Vec<(usize, Direction)>,
}

/// One figure of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    /// How it is worked out.
    pub function: Function,
    /// Of what; nothing to count objects.
    pub field: Option<QueryField>,
}

/// Which way an order goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the least.
    Ascending,
    /// From the greatest.
    Descending,
}

/// How a figure is worked out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// How many objects there are, or have the field.
    Count,
    /// The least value.
    Min,
    /// The greatest value.
    Max,
    /// The mean of numbers.
    Mean,
    /// The sum of numbers.
    Sum,
    /// How many different values there are.
    Distinct,
}

impl Function {
    /// Every one, with its name in a query.
    pub const ALL: [(Function, &'static str); 6] = [
        (Function::Count, "count"),
        (Function::Min, "min"),
        (Function::Max, "max"),
        (Function::Mean, "mean"),
        (Function::Sum, "sum"),
        (Function::Distinct, "distinct"),
    ];

    /// Its name in a query.
    pub fn name(self) -> &'static str {
        Function::ALL.iter().find(|(known, _)| *known == self).map_or("", |(_, name)| name)
    }
}

/// One key to order by. Objects that lack it come last, whichever the direction.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// By what.
    pub field: QueryField,
    /// From the greatest.
    pub descending: bool,
}

/// A condition on one object.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Expr {
    /// Every object.
    #[default]
    All,
    /// All of these.
    And(Vec<Expr>),
    /// Any of these.
    Or(Vec<Expr>),
    /// Not this: plain negation.
    Not(Box<Expr>),
    /// A field compared. False where the object lacks the field.
    Test(QueryField, Test),
    /// The object lies in the group of this path, at any depth. False where there is none.
    Under(String),
}

/// What is compared.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum QueryField {
    /// The object's own attribute.
    Attr(String),
    /// A field of the object's own attribute, whose dtype is a structure; a field of that, and so
    /// on.
    Part(String, Vec<String>),
    /// The attribute of the nearest group above the object that has it.
    GroupAttr(String),
    /// A field of that attribute, whose dtype is a structure; a field of that, and so on.
    GroupPart(String, Vec<String>),
    /// What every object has.
    Builtin(Builtin),
}

/// The built-in fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Builtin {
    /// The last component of the path.
    Name,
    /// The path in the namespace, without a leading slash.
    Path,
    /// The path of the group that holds the object; empty for the root.
    Group,
    /// The owner: the user's name, or the uid as a number.
    Owner,
    /// The dtype as numpy writes it (`float64`, `<U3`, `[('x', '<f8')]`; `bytes` for a blob).
    Dtype,
    /// The shape, as `(3, 4)`.
    Shape,
    /// How many dimensions.
    Ndim,
    /// How many items.
    Size,
    /// Bytes of the value.
    Nbytes,
    /// The scope: `shared` until there are others.
    Scope,
    /// When the object was made.
    Created,
    /// When its row last changed.
    Modified,
}

impl Builtin {
    /// Every one, with its name in a query.
    pub const ALL: [(Builtin, &'static str); 12] = [
        (Builtin::Name, "name"),
        (Builtin::Path, "path"),
        (Builtin::Group, "group"),
        (Builtin::Owner, "owner"),
        (Builtin::Dtype, "dtype"),
        (Builtin::Shape, "shape"),
        (Builtin::Ndim, "ndim"),
        (Builtin::Size, "size"),
        (Builtin::Nbytes, "nbytes"),
        (Builtin::Scope, "scope"),
        (Builtin::Created, "created"),
        (Builtin::Modified, "modified"),
    ];
}

/// How a field is compared.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// `= != < <= > >=`
    Compare(Comparison, Literal),
    /// `between low and high`, both included.
    Between(Literal, Literal),
    /// `in (a, b)`: equal to any.
    In(Vec<Literal>),
    /// A string that contains this one; an array with an item equal to it.
    Contains(Literal),
    /// A string that starts with this.
    StartsWith(String),
    /// A string that ends with this.
    EndsWith(String),
    /// A string that matches: `%` any run, `_` any one character, `\` takes the next as it is.
    Like(String),
    /// There is such a field.
    Exists,
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `=`
    Eq,
    /// `!=`: there, and not equal (unlike types are not equal: but a comparison of unlike types is
    /// false, so that is false too).
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
}
