//! One member of a group: a thread that polls; what it holds is behind a lock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::KafkaError;
use rdkafka::util::Timeout;
use rdkafka::{ClientContext, Offset, TopicPartitionList};
use serde_json::{json, Value};

use crate::wire::{Command, Record};
use crate::{text, Outcome, PATIENCE, POLL};

type Partition = (String, i32);

#[derive(Default)]
struct Holdings {
    assigned: BTreeSet<Partition>,
    revoked: Vec<Partition>,
    untaken: Vec<Record>,
    next: BTreeMap<Partition, i64>,
}

impl Holdings {
    /// Records that nobody has taken are the next owner's.
    fn forget(&mut self, gone: &Partition) {
        self.next.remove(gone);
        self.untaken.retain(|each| (&each.topic, each.partition) != (&gone.0, gone.1));
    }
}

struct Shared(Arc<Mutex<Holdings>>);

impl ClientContext for Shared {}

impl Shared {
    fn gone(&self, partitions: &TopicPartitionList) {
        let mut held = self.0.lock().unwrap();
        for each in partitions.elements() {
            let at = (each.topic().to_string(), each.partition());
            held.assigned.remove(&at);
            held.forget(&at);
            held.revoked.push(at);
        }
    }
}

impl ConsumerContext for Shared {
    fn pre_rebalance(&self, _: &BaseConsumer<Self>, what: &Rebalance<'_>) {
        match what {
            Rebalance::Assign(partitions) => {
                let mut held = self.0.lock().unwrap();
                for each in partitions.elements() {
                    held.assigned.insert((each.topic().to_string(), each.partition()));
                }
            }
            Rebalance::Revoke(partitions) => self.gone(partitions),
            Rebalance::Error(_) => {}
        }
    }
}

pub struct Member {
    consumer: Arc<BaseConsumer<Shared>>,
    holdings: Arc<Mutex<Holdings>>,
    stopping: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Member {
    pub fn join(mut settings: ClientConfig, wanted: &Command) -> Outcome<Member> {
        settings
            .set("group.id", &wanted.group)
            .set("auto.offset.reset", "earliest")
            .set("partition.assignment.strategy", &wanted.strategy)
            .set("enable.auto.commit", (wanted.auto_commit_ms > 0).to_string())
            .set("heartbeat.interval.ms", "300")
            .set("session.timeout.ms", "6000")
            .set("fetch.wait.max.ms", "100");
        if wanted.auto_commit_ms > 0 {
            settings.set("auto.commit.interval.ms", wanted.auto_commit_ms.to_string());
        }
        if !wanted.instance.is_empty() {
            settings.set("group.instance.id", &wanted.instance);
        }
        let holdings = Arc::new(Mutex::new(Holdings::default()));
        let consumer: BaseConsumer<Shared> =
            settings.create_with_context(Shared(holdings.clone())).map_err(text)?;
        let topics: Vec<&str> = wanted.topics.iter().map(String::as_str).collect();
        consumer.subscribe(&topics).map_err(text)?;
        let consumer = Arc::new(consumer);
        let stopping = Arc::new(AtomicBool::new(false));
        let thread = {
            let (consumer, holdings, stopping) =
                (consumer.clone(), holdings.clone(), stopping.clone());
            std::thread::spawn(move || {
                while !stopping.load(Ordering::Acquire) {
                    // An error here is a broker that is away: the library goes on by itself.
                    if let Some(Ok(message)) = consumer.poll(POLL) {
                        let record = Record::of(&message);
                        let mut held = holdings.lock().unwrap();
                        if held.assigned.contains(&(record.topic.clone(), record.partition)) {
                            held.untaken.push(record);
                        }
                    }
                }
            })
        };
        Ok(Member { consumer, holdings, stopping, thread })
    }

    pub fn assigned(&self) -> Value {
        let held = self.holdings.lock().unwrap();
        json!({ "now": held.assigned, "revoked": held.revoked })
    }

    pub fn take(&self) -> Vec<Record> {
        let mut held = self.holdings.lock().unwrap();
        let taken = std::mem::take(&mut held.untaken);
        for each in &taken {
            held.next.insert((each.topic.clone(), each.partition), each.offset + 1);
        }
        taken
    }

    pub fn commit(&self) -> Outcome<()> {
        let mut offsets = TopicPartitionList::new();
        for ((topic, partition), next) in &self.holdings.lock().unwrap().next {
            offsets
                .add_partition_offset(topic, *partition, Offset::Offset(*next))
                .map_err(text)?;
        }
        if offsets.count() == 0 {
            return Ok(());
        }
        self.consumer.commit(&offsets, CommitMode::Sync).map_err(text)
    }

    pub fn seek(&self, topic: &str, partition: i32, offset: i64) -> Outcome<()> {
        let done: Result<(), KafkaError> =
            self.consumer.seek(topic, partition, Offset::Offset(offset), Timeout::After(PATIENCE));
        done.map_err(text)?;
        self.holdings.lock().unwrap().forget(&(topic.to_string(), partition));
        Ok(())
    }

    /// The consumer leaves its group when its last owner drops it: here, after the thread.
    pub fn leave(self) {
        self.stopping.store(true, Ordering::Release);
        let _ = self.thread.join();
    }
}
