//! An agent for the Rust client `rdkafka`: commands in JSON lines on stdin, answers on stdout.
//!
//!     agent rust-rdkafka HOST:PORT
//!
//! tests/clients/agents/driver.py says what each command means; members of groups are in member.rs.

mod member;
mod wire;

use std::collections::HashMap;
use std::io::{self, BufRead, Write};
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use rdkafka::util::Timeout;
use rdkafka::{ClientContext, Message, Offset, TopicPartitionList};
use serde_json::{json, Value};

use crate::member::Member;
use crate::wire::{Command, Record};

pub const PATIENCE: Duration = Duration::from_secs(60);
pub const POLL: Duration = Duration::from_millis(100);

pub type Outcome<T> = Result<T, String>;

pub fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn main() {
    let bootstrap = std::env::args().nth(2).expect("rust-rdkafka HOST:PORT");
    let mut members: HashMap<String, Member> = HashMap::new();
    for line in io::stdin().lock().lines() {
        let outcome = line.map_err(text).and_then(|line| {
            let wanted: Command = serde_json::from_str(&line).map_err(text)?;
            perform(&bootstrap, &mut members, wanted)
        });
        let answer = match outcome {
            Ok(value) => json!({ "ok": value }),
            Err(error) => json!({ "error": error }),
        };
        let mut out = io::stdout().lock();
        if writeln!(out, "{answer}").and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}

fn perform(
    bootstrap: &str,
    members: &mut HashMap<String, Member>,
    wanted: Command,
) -> Outcome<Value> {
    match wanted.op.as_str() {
        "version" => return Ok(json!("0.39.0, librdkafka ".to_string() + &rdkafka::util::get_rdkafka_version().1)),
        "create" => return create(bootstrap, &wanted),
        "produce" => return produce(bootstrap, &wanted),
        "read" => return read(bootstrap, &wanted),
        "offset_at" => return offset_at(bootstrap, &wanted),
        "join" => {
            let made = Member::join(settings(bootstrap), &wanted)?;
            members.insert(wanted.name, made);
            return Ok(Value::Null);
        }
        _ => {}
    }
    if wanted.op == "leave" {
        members.remove(&wanted.name).ok_or("no such member")?.leave();
        return Ok(Value::Null);
    }
    let one = members.get_mut(&wanted.name).ok_or("no such member")?;
    match wanted.op.as_str() {
        "assigned" => Ok(one.assigned()),
        "take" => Ok(json!(one.take())),
        "commit" => one.commit().map(|()| Value::Null),
        "seek" => one.seek(&wanted.topic, wanted.partition, wanted.offset).map(|()| Value::Null),
        other => Err(format!("no such command: {other}")),
    }
}

fn settings(bootstrap: &str) -> ClientConfig {
    let mut made = ClientConfig::new();
    made.set("bootstrap.servers", bootstrap);
    made
}

fn create(bootstrap: &str, wanted: &Command) -> Outcome<Value> {
    let admin: AdminClient<DefaultClientContext> = settings(bootstrap).create().map_err(text)?;
    let mut topic = NewTopic::new(&wanted.topic, wanted.partitions, TopicReplication::Fixed(1));
    for (key, value) in &wanted.configs {
        topic = topic.set(key, value);
    }
    let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
    let created = block_on(admin.create_topics(&[topic], &options)).map_err(text)?;
    for each in created {
        each.map_err(|(_, code)| text(code))?;
    }
    Ok(Value::Null)
}

/// The one future here is completed by the library's own thread: looking again is enough.
fn block_on<F: std::future::Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Delivery reports: the record's place in the command comes back with its offset.
#[derive(Default)]
struct Deliveries(std::sync::Mutex<Vec<(usize, Outcome<i64>)>>);

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = Box<usize>;

    fn delivery(&self, result: &DeliveryResult<'_>, place: Box<usize>) {
        let outcome = match result {
            Ok(message) => Ok(message.offset()),
            Err((error, _)) => Err(text(error)),
        };
        self.0.lock().unwrap().push((*place, outcome));
    }
}

fn produce(bootstrap: &str, wanted: &Command) -> Outcome<Value> {
    let producer: BaseProducer<Deliveries> = settings(bootstrap)
        .set("compression.type", &wanted.codec)
        .set("enable.idempotence", "true")
        .set("message.max.bytes", (8 << 20).to_string())
        .set("linger.ms", "20")
        .create_with_context(Deliveries::default())
        .map_err(text)?;
    for (place, each) in wanted.records.iter().enumerate() {
        let headers = each.headers.iter().fold(OwnedHeaders::new(), |made, one| {
            made.insert(Header { key: &one.key, value: one.value.as_ref().map(|v| &v.0) })
        });
        let mut record = BaseRecord::<[u8], [u8], Box<usize>>::with_opaque_to(
            &wanted.topic,
            Box::new(place),
        )
        .partition(each.partition)
        .timestamp(each.timestamp)
        .headers(headers);
        if let Some(key) = &each.key {
            record = record.key(&key.0);
        }
        if let Some(value) = &each.value {
            record = record.payload(&value.0);
        }
        producer.send(record).map_err(|(error, _)| text(error))?;
    }
    producer.flush(Timeout::After(PATIENCE)).map_err(text)?;
    let mut found = std::mem::take(&mut *producer.context().0.lock().unwrap());
    found.sort_by_key(|(place, _)| *place);
    let offsets: Outcome<Vec<i64>> = found.into_iter().map(|(_, outcome)| outcome).collect();
    Ok(json!(offsets?))
}

fn reader(bootstrap: &str) -> Outcome<BaseConsumer> {
    settings(bootstrap)
        .set("group.id", "read-without-a-group")
        .set("enable.auto.commit", "false")
        .create()
        .map_err(text)
}

fn read(bootstrap: &str, wanted: &Command) -> Outcome<Value> {
    let consumer = reader(bootstrap)?;
    let mut at = TopicPartitionList::new();
    at.add_partition_offset(&wanted.topic, wanted.partition, Offset::Offset(wanted.offset))
        .map_err(text)?;
    consumer.assign(&at).map_err(text)?;
    let (mut found, started) = (Vec::new(), Instant::now());
    while found.len() < wanted.count {
        match consumer.poll(POLL) {
            Some(message) => found.push(Record::of(&message.map_err(text)?)),
            None if started.elapsed() > PATIENCE => {
                return Err(format!("{} of {} records", found.len(), wanted.count));
            }
            None => {}
        }
    }
    Ok(json!(found))
}

fn offset_at(bootstrap: &str, wanted: &Command) -> Outcome<Value> {
    let mut at = TopicPartitionList::new();
    at.add_partition_offset(&wanted.topic, wanted.partition, Offset::Offset(wanted.timestamp))
        .map_err(text)?;
    let found = reader(bootstrap)?.offsets_for_times(at, PATIENCE).map_err(text)?;
    let offset = found.elements()[0].offset().to_raw();
    Ok(json!(offset.filter(|offset| *offset >= 0)))
}
