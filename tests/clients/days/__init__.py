"""A scripted day, held with Apache Kafka and with kbroker: the same steps, the same outcome.

`script.py` is the day for the Python libraries, `Day.java` the same for the Java clients;
`admins.py` is what the script asks of each library's admin client. What Apache Kafka's day looked
like is in `apache_kafka_4_3_0/`, one file a client; `record.py` writes it anew.
"""
