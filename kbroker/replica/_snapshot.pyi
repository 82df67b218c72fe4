"""The C snapshot of the metadata, in C alone: Python publishes through _topic_table.TopicTable."""
