//! A query, decoded as Go decodes it.

/// Names and values in their order. Go passes over pairs that it cannot decode.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub fn parse(query: &str) -> Self {
        let pairs = query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';'));
        let decoded = pairs.filter_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(key)?, decode(value)?))
        });
        Self(decoded.collect())
    }

    /// Of several values for a name, the first.
    pub fn first(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl DoubleEndedIterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Percent signs and plus signs. What is no UTF-8 becomes a sign that nothing here means anything by.
fn decode(text: &str) -> Option<String> {
    let bytes = crate::mux::decode(&text.replace('+', " "))?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
