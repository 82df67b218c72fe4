//! What travels on stdin and stdout: commands, records, bytes as base64.

use std::collections::BTreeMap;

use base64::prelude::{Engine, BASE64_STANDARD};
use rdkafka::message::{BorrowedMessage, Headers, Message};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub struct Bytes(pub Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&BASE64_STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        BASE64_STANDARD.decode(text).map(Bytes).map_err(serde::de::Error::custom)
    }
}

#[derive(Serialize, Deserialize)]
pub struct Header {
    pub key: String,
    pub value: Option<Bytes>,
}

#[derive(Serialize, Deserialize)]
pub struct Record {
    #[serde(default)]
    pub topic: String,
    pub partition: i32,
    #[serde(default)]
    pub offset: i64,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Vec<Header>,
    pub timestamp: i64,
}

impl Record {
    pub fn of(message: &BorrowedMessage<'_>) -> Record {
        let headers = message.headers().map_or_else(Vec::new, |all| {
            all.iter()
                .map(|one| Header {
                    key: one.key.to_string(),
                    value: one.value.map(|value| Bytes(value.to_vec())),
                })
                .collect()
        });
        Record {
            topic: message.topic().to_string(),
            partition: message.partition(),
            offset: message.offset(),
            key: message.key().map(|key| Bytes(key.to_vec())),
            value: message.payload().map(|value| Bytes(value.to_vec())),
            headers,
            timestamp: message.timestamp().to_millis().unwrap_or(-1),
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct Command {
    pub op: String,
    pub topic: String,
    pub topics: Vec<String>,
    pub partition: i32,
    pub partitions: i32,
    pub configs: BTreeMap<String, String>,
    pub codec: String,
    pub records: Vec<Record>,
    pub offset: i64,
    pub count: usize,
    pub timestamp: i64,
    pub name: String,
    pub group: String,
    pub strategy: String,
    pub instance: String,
    pub auto_commit_ms: u64,
}
