"""What Metadata shows, in C alone: Python publishes through _topic_table.TopicTable.show."""
