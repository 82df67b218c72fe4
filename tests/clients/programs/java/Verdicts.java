// What Apache Kafka says of record batches: its broker when they are produced, its consumer when
// they are read.
//
//     java -cp "CLASSES:libs/*" Verdicts
//
// On stdin an int32 of a size and a batch, again and again; on stdout seven bytes for each. A bit
// mask: 1 the validator of the log takes it into a topic with CreateTime, 2 into a compacted
// one, 4 into one with LogAppendTime, 8 a consumer reads all of it. Then a CRC-32 of what the
// consumer read (offset, timestamp, key, value, headers of every record), and how many records
// are tombstones.

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.nio.ByteBuffer;
import java.util.zip.CRC32;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;

public class Verdicts {
    static final TopicPartition PLACE = new TopicPartition("t", 0);
    static final BufferSupplier BUFFERS = BufferSupplier.create();
    static final boolean TELL = System.getenv("VERDICTS_TELL") != null;

    static final class Nothing implements LogValidator.MetricsRecorder {
        public void recordInvalidMagic() {}

        public void recordInvalidOffset() {}

        public void recordInvalidSequence() {}

        public void recordInvalidChecksums() {}

        public void recordNoKeyCompactedTopic() {}
    }

    static final CRC32 CRC = new CRC32();
    static final ByteBuffer NUMBER = ByteBuffer.allocate(8);
    static int tombstones;

    public static void main(String[] nothing) throws Exception {
        var in = new DataInputStream(new BufferedInputStream(System.in, 1 << 20));
        var out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 16));
        while (true) {
            int size;
            try {
                size = in.readInt();
            } catch (EOFException end) {
                break;
            }
            byte[] batch = in.readNBytes(size);
            int taken = produced(batch, false, TimestampType.CREATE_TIME) ? 1 : 0;
            taken |= produced(batch, true, TimestampType.CREATE_TIME) ? 2 : 0;
            taken |= produced(batch, false, TimestampType.LOG_APPEND_TIME) ? 4 : 0;
            taken |= consumed(batch) ? 8 : 0;
            out.writeByte(taken);
            out.writeInt((taken & 8) == 0 ? 0 : (int) CRC.getValue());
            out.writeShort((taken & 8) == 0 ? 0 : tombstones);
            if (in.available() == 0) {
                out.flush();
            }
        }
        out.flush();
    }

    static void tell(String what, Throwable error) {
        if (TELL) {
            System.err.println(what + ": " + error);
        }
    }

    static boolean produced(byte[] bytes, boolean compacted, TimestampType type) {
        try {
            // The validator writes offsets and timestamps into what it is given.
            MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes.clone()));
            RecordBatch batch = records.batches().iterator().next();
            batch.ensureValid();
            new LogValidator(
                    records, PLACE, Time.SYSTEM, batch.compressionType(),
                    Compression.of(batch.compressionType()).build(), compacted,
                    RecordBatch.CURRENT_MAGIC_VALUE, type, Long.MAX_VALUE, 3_600_000L, 0,
                    AppendOrigin.CLIENT)
                .validateMessagesAndAssignOffsets(
                    PrimitiveRef.ofLong(0), new Nothing(), BUFFERS);
            return true;
        } catch (Throwable error) { // snappy-java throws errors
            tell("produce", error);
            return false;
        }
    }

    static void add(long number) {
        NUMBER.clear();
        NUMBER.putLong(number);
        CRC.update(NUMBER.array());
    }

    static void add(ByteBuffer bytes) {
        add(bytes == null ? -1 : bytes.remaining());
        if (bytes != null) {
            CRC.update(bytes);
        }
    }

    static boolean consumed(byte[] bytes) {
        CRC.reset();
        tombstones = 0;
        try {
            MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes));
            RecordBatch batch = records.batches().iterator().next();
            batch.ensureValid();
            try (CloseableIterator<Record> each = batch.streamingIterator(BUFFERS)) {
                while (each.hasNext()) {
                    Record record = each.next();
                    add(record.offset());
                    add(record.timestamp());
                    add(record.key());
                    add(record.value());
                    add(record.headers().length);
                    for (Header header : record.headers()) {
                        add(ByteBuffer.wrap(header.key().getBytes("UTF-8")));
                        add(header.value() == null ? null : ByteBuffer.wrap(header.value()));
                    }
                    tombstones += record.hasValue() ? 0 : 1;
                }
            }
            return true;
        } catch (Throwable error) {
            tell("consume", error);
            return false;
        }
    }
}
