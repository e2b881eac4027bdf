"""Message queues as targets.

    Kafka       kafka.py; kafka_producer.py hands it messages, by librdkafka.py without a Python
                call each; kafka_place.py reads the place that a target is at
    RabbitMQ    rabbitmq.py (queues and exchanges, by amqp_link.py), rabbitmq_streams.py (streams,
                by stream_link.py, with the numbers of publishing_ids.py)
    RocketMQ    rocketmq.py

What they are sent is made in sinks/messages.py.
"""
