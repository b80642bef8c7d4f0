//! Dtypes: what goes in comes out, and no bytes can do harm.
