//! Writes what is logged into a table.

mod table;
