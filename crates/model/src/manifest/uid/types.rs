//! The table of upstream's inner types.
//!
//! A line `struct T` begins a type, and each line after it that begins with a blank is a field: its name, its name in JSON
//! or `-` where its own fields stand in its place, and its type. `name T U` says that `T` is another name for `U`.

use std::collections::HashMap;

const TABLE: &str = include_str!("types.txt");

#[derive(Clone, Copy)]
pub struct Field {
    pub name: &'static str,
    /// `None` for an embedded type, whose fields stand among those of the outer one.
    pub key: Option<&'static str>,
    pub type_name: &'static str,
}

/// Read anew for each pod: that takes microseconds, and static pods are few.
#[derive(Default)]
pub struct Types {
    structs: HashMap<&'static str, Vec<Field>>,
    names: HashMap<&'static str, &'static str>,
}

impl Types {
    pub fn read() -> Self {
        let mut types = Self::default();
        let mut current: Option<&mut Vec<Field>> = None;
        for line in TABLE.lines() {
            let words: Vec<&'static str> = line.split_whitespace().collect();
            match words[..] {
                ["struct", name] => current = Some(types.structs.entry(name).or_default()),
                ["name", name, of] => {
                    types.names.insert(name, of);
                }
                [name, key, type_name] => {
                    let key = (key != "-").then_some(key);
                    if let Some(fields) = current.as_mut() {
                        fields.push(Field { name, key, type_name });
                    }
                }
                _ => {}
            }
        }
        types
    }

    pub fn fields(&self, type_name: &str) -> &[Field] {
        self.structs.get(type_name).map(Vec::as_slice).unwrap_or_default()
    }

    pub fn behind(&self, name: &str) -> Option<&'static str> {
        self.names.get(name).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Printed in ways of their own.
    const SPECIAL: [&str; 4] = ["resource.Quantity", "v1.Time", "v1.FieldsV1", "intstr.IntOrString"];

    #[test]
    fn every_type_that_a_field_has_is_known() {
        let types = Types::read();
        let fields = types.structs.values().flatten().map(|field| field.type_name);
        let named = types.names.values().copied();
        for mut name in fields.chain(named) {
            while let Some(inner) = name
                .strip_prefix('*')
                .or_else(|| name.strip_prefix("[]"))
                .or_else(|| name.strip_prefix("map[").and_then(|rest| Some(rest.split_once(']')?.1)))
            {
                name = inner;
            }
            let is_plain = ["bool", "string", "int32", "int64"].contains(&name);
            let is_known = !types.fields(name).is_empty() || types.behind(name).is_some();
            assert!(is_plain || is_known || SPECIAL.contains(&name), "{name}");
        }
        assert_eq!(types.fields("core.Pod").len(), 4);
    }
}
